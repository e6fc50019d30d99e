"""Is more in the texts than `checker` finds? Other evidence on the same outputs, for comparison.

    S3DLM_DATA=folder python -m tools.text_classifier [--quick]

For every set of outputs: the share of outputs with a step to check, the share of pairs of a right and
a wrong output to one question whose texts are equal but for the answer, and the pair accuracy of `checker` as
shipped, where both texts have a step to check and where neither has one, of the number of votes, and of votes
and score together (`selection="agreement"`). Then, unless `--quick`, and with scikit-learn: of a classifier of
n-grams of words and characters trained on pairs, and of a random forest on all features that were ever tried
and the text's length. Both are cross-fitted in five parts of the questions, on all sets of a task together.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3dlm.answers import extract, normalise
from s3dlm.answers.grading import grade
from s3dlm.inputs import read_json_lines
from s3dlm.search.select import SCORE_WEIGHT
from s3dlm.verifier import for_task
from s3dlm.verifier.base import CHECKABLE
from s3dlm.verifier.checker import FEATURES
from s3dlm.verifier.parsed import FreeText, ParsedText
from tools.checker_candidates import GROUPS

Floats = NDArray[np.float64]
Pair = tuple[int, int, float]  # a right output, a wrong one, and a weight
FOLDS = 5
WORDS = {"ngram_range": (1, 3), "min_df": 3, "sublinear_tf": True}
CHARACTERS = {"analyzer": "char_wb", "ngram_range": (2, 5), "min_df": 5, "sublinear_tf": True}


@dataclass(frozen=True)
class Output:
    """One text, how often it was given, and all that is known of it."""

    source: str
    question: str
    text: str
    count: int
    bare: str  # the text up to its answer
    right: bool
    checkable: bool
    checker: float
    votes: int  # outputs to the question with the same answer
    features: list[float]

    @property
    def fold(self) -> int:
        return hashlib.sha256(" ".join(self.question.split()).encode()).digest()[1] % FOLDS


def read(task: str) -> Iterator[Output]:
    """All outputs of a task, equal ones once."""
    folder = Path(os.environ["S3DLM_DATA"])
    rows = [
        {**row, "model": f"LLaDA-8B-Instruct, d1's prompt, {task}"}
        for _, row in read_json_lines(folder / "llada8b_outputs.jsonl")
        if row["task"] == task
    ]
    if task == "gsm8k":
        rows += [row for _, row in read_json_lines(folder / "dlm_samples_gsm8k.jsonl")]
    grouped: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["gold"] is not None:
            grouped.setdefault((row["model"], row["question"]), []).append(row)
    judge = for_task(task, "checker")
    for (source, question), some in grouped.items():
        texts = Counter(row["output"] for row in some)
        found = {text: extract(task, text, question) for text in texts}
        answers = {t: None if a is None else normalise(task, a) for t, a in found.items()}
        votes = Counter[str | None]()
        for text, count in texts.items():
            votes[answers[text]] += count
        for text, count in texts.items():
            reader = FreeText if task == "gsm8k" else ParsedText
            parsed, score = reader(question, text), judge.score(question, text)
            values = [
                f(parsed, parsed.derivation) for part in FEATURES.values() for f in part.values()
            ]
            values += [feature(parsed) for group in GROUPS.values() for feature in group]
            values += [len(parsed.text), parsed.text.count("\n"), parsed.text.count("=")]
            yield Output(
                source, question, text, count,
                parsed.text[: parsed.answer.start] if parsed.answer else parsed.text,
                grade(task, text, some[0]["gold"], "fixed", question) == 1.0,
                score.parts[CHECKABLE] > 0, score.total, votes[answers[text]], [float(v) for v in values],
            )  # fmt: skip


def pairs_of(outputs: list[Output]) -> list[Pair]:
    """Every right and wrong output of a question, with a weight: questions count the same."""
    groups: dict[tuple[str, str], list[int]] = {}
    for at, output in enumerate(outputs):
        groups.setdefault((output.source, output.question), []).append(at)
    pairs = []
    for group in groups.values():
        some = [
            (a, b, float(outputs[a].count * outputs[b].count))
            for a in group
            for b in group
            if outputs[a].right > outputs[b].right
        ]
        total = sum(weight for *_, weight in some)
        pairs += [(a, b, weight / total) for a, b, weight in some]
    return pairs


def by_ngrams(outputs: list[Output], pairs: list[Pair]) -> Floats:
    from scipy.sparse import hstack, vstack
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    texts = [output.text.replace("<|endoftext|>", "") for output in outputs]
    seen = [TfidfVectorizer(**how).fit_transform(texts) for how in (WORDS, CHARACTERS)]
    points, scores = hstack(seen).tocsr(), np.zeros(len(outputs))
    for part in range(FOLDS):
        train = [pair for pair in pairs if outputs[pair[0]].fold != part]
        gaps = points[[a for a, *_ in train]] - points[[b for _, b, _ in train]]
        weights, rows = np.array([w for *_, w in train]), [o.fold == part for o in outputs]
        model = LogisticRegression(C=10, max_iter=300, fit_intercept=False)
        model.fit(vstack([gaps, -gaps]), [1] * len(train) + [0] * len(train), np.tile(weights, 2))
        scores[rows] = model.decision_function(points[np.flatnonzero(rows)])
    return scores


def by_forest(outputs: list[Output]) -> Floats:
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]

    points = np.array([output.features for output in outputs])
    fold = np.array([output.fold for output in outputs])
    right, scores = np.array([output.right for output in outputs]), np.zeros(len(outputs))
    for part in range(FOLDS):
        model = RandomForestClassifier(300, min_samples_leaf=8, random_state=0)
        model.fit(points[fold != part], right[fold != part])
        scores[fold == part] = model.predict_proba(points[fold == part])[:, 1]
    return scores


def accuracy(score: Floats, pairs: list[Pair]) -> str:
    """The mean over questions, and how many there are."""
    if not pairs:
        return "–"
    gaps = np.round([score[a] - score[b] for a, b, _ in pairs], 9)
    weights = np.array([weight for *_, weight in pairs])
    return f"{weights @ ((gaps > 0) + 0.5 * (gaps == 0)) / weights.sum():.3f}"


def main(quick: bool) -> None:
    columns = [
        "questions",
        "checkable",
        "equal texts",
        "checker",
        "both checkable",
        "neither",
        "votes",
    ]
    columns += ["agreement", *([] if quick else ["n-grams", "forest"])]
    print(f"| outputs | {' | '.join(columns)} |\n{'|---' * (len(columns) + 1)}|")
    for task in ("gsm8k", "math500"):
        outputs = list(read(task))
        pairs = pairs_of(outputs)
        checker = np.array([output.checker for output in outputs])
        votes = np.array([float(output.votes) for output in outputs])
        scores = [votes, np.log(votes) + SCORE_WEIGHT * checker]
        scores += [] if quick else [by_ngrams(outputs, pairs), by_forest(outputs)]
        for source in dict.fromkeys(output.source for output in outputs):
            own = [pair for pair in pairs if outputs[pair[0]].source == source]
            of_source = [output for output in outputs if output.source == source]
            checkable = sum(o.count for o in of_source if o.checkable) / sum(
                o.count for o in of_source
            )
            same = sum(w for a, b, w in own if outputs[a].bare == outputs[b].bare)
            parts: dict[int, list[Pair]] = {0: [], 1: [], 2: []}
            for a, b, weight in own:
                parts[outputs[a].checkable + outputs[b].checkable].append((a, b, weight))
            count = len({outputs[a].question for a, *_ in own})
            cells = [f"{count}", f"{100 * checkable:.0f} %", f"{100 * same / count:.0f} %"]
            cells += [accuracy(checker, some) for some in (own, parts[2], parts[0])]
            cells += [accuracy(score, own) for score in scores]
            print(f"| {source} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="without the classifiers")
    main(parser.parse_args().quick)
