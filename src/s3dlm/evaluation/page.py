"""The report as one self-contained HTML page: style, script, figures and data are embedded.

Questions, answers and outputs are untrusted text. Python escapes what it writes; the script sets
text, never markup; the embedded JSON cannot close its own element; and a content security policy
keeps the page from loading or sending anything.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from itertools import takewhile
from pathlib import Path

import numpy as np

from s3dlm.answers import gold_in_words
from s3dlm.evaluation import series
from s3dlm.evaluation.compute_figure import accuracy_over_nfe
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.summary import Evaluation
from s3dlm.evaluation.tables import Grid, title_of
from s3dlm.search.step import Step
from s3dlm.trace import read_trace

SURVIVORS_OF = 200  # problems per task whose survivors' texts are embedded
FRONTIER = "accuracy_nfe"  # drawn by the page itself, first
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
SPECIAL = re.compile(r"<\|[^|]*\|>|</?s>|\[(EOS|PAD|SEP)\]")  # as in the viewer

NAMES = {  # section names in the navigation bar
    "accuracy": "Accuracy",
    "comparisons": "Comparisons",
    "ablation": "Ablation",
    "paper": "Paper",
    "paper_cost": "Paper's cost",
    "cost": "Cost",
    "block_cost": "Cost by block",
    "search": "Search",
    "sweep": "N and b",
    "distinct": "Distinct texts",
    "accuracy_nfe": "Compute",
    "confidence": "Confidence",
    "block_length": "Blocks",
    "score_density": "Scores",
    "score_heat": "Heat map",
    "density_quality": "Density",
    "sampling_search": "Sampling and search",
    "best_of_k_bound": "Bound",
    "in_fit": "Fitted on",
    "probability": "Probability",
    "reliability": "Reliability",
    "failures": "Failures",
}


def _asset(name: str) -> str:
    return (files("s3dlm.evaluation") / "assets" / name).read_text(encoding="utf-8")


def render(
    run: Evaluation,
    title: str,
    verdict: Sequence[str],
    facts: Mapping[str, str],
    grids: Sequence[Grid],
    figures: Sequence[tuple[str, str, str, str]],
    reference: str,
    target: Path,
) -> str:
    """The whole page, to be written to `target`; `figures` are (key, title, caption, SVG text)."""
    figures = [figure for figure in figures if figure[0] != FRONTIER]
    first = [grid for grid in grids if not grid.late]
    last = [grid for grid in grids if grid.late]
    compute = _frontier(run)
    anchors = [
        *([(FRONTIER, NAMES[FRONTIER])] if compute else []),
        *((grid.key, NAMES.get(grid.key, grid.key)) for grid in first),
        *((f"figure-{key}", NAMES.get(key, key)) for key, _, _, _ in figures),
        *((grid.key, NAMES.get(grid.key, grid.key)) for grid in last),
        ("problems", "Problems"),
        ("settings", "Settings"),
    ]
    links = "".join(f'<li><a href="#{key}">{_text(name)}</a></li>' for key, name in anchors)
    body = [
        compute,
        *(_table(grid) for grid in first),
        *(_figure(*figure) for figure in figures),
        *(_table(grid) for grid in last),
        _browser(run, reference),
        _facts(facts),
    ]
    sentences = "".join(f"<p>{_text(line)}</p>" for line in verdict)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{_text(title)}</title><style>{_asset('report.css')}</style></head>\n<body>"
        f'<header><h1>{_text(title)}</h1><div class="verdict">{sentences}</div></header>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav><main>{"".join(body)}</main>'
        f'<footer class="soft">Made by <code>s3dlm report</code> from {_text(str(_count(run)))} '
        "records.</footer>"
        f'<script type="application/json" id="data">{_embedded(_problems(run, target))}</script>'
        f"<script>{_asset('report.js')}</script></body></html>\n"
    )


def _frontier(run: Evaluation) -> str:
    drawn = accuracy_over_nfe(
        series.accuracy_nfe(run), {task: title_of(task) for task in run.tasks}
    )
    if not drawn:
        return ""
    return (
        f'<section id="{FRONTIER}"><h2>Accuracy against compute</h2><figure>{drawn}<figcaption>'
        "Up and to the left is better. NFE: forward passes per problem. Bars are 95 % intervals over "
        "the problems that all points of a panel share; the number of particles N grows along a line."
        "</figcaption></figure></section>"
    )


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def _count(run: Evaluation) -> int:
    return sum(len(some) for some in run.records.values())


def _table(grid: Grid) -> str:
    words = [_is_word(grid, column) for column in range(len(grid.columns))]
    head = "".join(
        f'<th scope="col"{" class=word" if word else ""}>{_text(name)}</th>'
        for name, word in zip(grid.columns, words, strict=True)
    )
    rows, before = [], ""
    for row in grid.rows:
        first = ' class="first"' if row[0] != before else ""
        cells = "".join(
            f"<td{' class=word' if word else ''}>{_cell(cell, row[0] == before and i == 0)}</td>"
            for i, (cell, word) in enumerate(zip(row, words, strict=True))
        )
        rows.append(f"<tr{first}>{cells}</tr>")
        before = row[0]
    note = f'<p class="note">{_text(grid.note)}</p>' if grid.note else ""
    return (
        f'<section id="{grid.key}"><h2>{_text(grid.title)}</h2><div class="scroll"><table><thead>'
        f"<tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{note}</section>"
    )


def _is_word(grid: Grid, column: int) -> bool:
    """Columns of names are aligned left, columns of numbers right."""
    return all(row[column][:1].isalpha() for row in grid.rows)


def _cell(text: str, repeated: bool) -> str:
    if repeated:
        return f'<span class="again">{_text(text)}</span>'
    return f"<strong>{_text(text[1:])}</strong>" if text.startswith("*") else _text(text)


def _figure(key: str, title: str, caption: str, svg: str) -> str:
    source = base64.b64encode(svg.encode()).decode()
    return (
        f'<section id="figure-{key}"><h2>{_text(title)}</h2><figure>'
        f'<div class="scroll"><img alt="{_text(title)}" src="data:image/svg+xml;base64,{source}">'
        f"</div><figcaption>{_text(caption)}</figcaption></figure></section>"
    )


def _facts(facts: Mapping[str, str]) -> str:
    pairs = "".join(f"<dt>{_text(k)}</dt><dd>{_text(v)}</dd>" for k, v in facts.items())
    return f'<section id="settings"><h2>Settings</h2><dl class="facts">{pairs}</dl></section>'


def _browser(run: Evaluation, reference: str) -> str:
    tasks = "".join(f'<option value="{_text(t)}">{_text(title_of(t))}</option>' for t in run.tasks)
    labels = run.labels()

    def choose(wanted: str) -> str:
        return "".join(
            f"<option{' selected' if label == wanted else ''}>{_text(label)}</option>"
            for label in labels
        )

    return (
        '<section id="problems"><h2>Problems</h2><div class="controls">'
        f'<label>Task<select id="task"><option value="">all</option>{tasks}</select></label>'
        '<label>Show<select id="outcome"><option value="all">every problem</option>'
        '<option value="won">first method better than second</option>'
        '<option value="lost">first method worse than second</option>'
        '<option value="failed">solved by no method</option>'
        '<option value="solved">solved by all methods</option></select></label>'
        f'<label>First method<select id="first">{choose(next((label for label in reversed(labels) if label != reference), ""))}</select></label>'
        f'<label>Second method<select id="second">{choose(reference)}</select></label>'
        '<label>Search<input id="words" type="search" placeholder="question, answer or output"></label>'
        '<button id="back" type="button">Previous</button><button id="next" type="button">Next</button>'
        '</div><p class="soft" id="found" aria-live="polite"></p><div id="problem-list"></div>'
        "</section>"
    )


def _embedded(data: object) -> str:
    """JSON that is safe inside a script element, whatever its strings contain."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _problems(run: Evaluation, target: Path) -> dict[str, object]:
    """The data of the problem list: grades, answer, output and votes of every main method."""
    listed = []
    for task in run.tasks:
        rows: dict[str, list[dict[str, object]]] = {s.id: [] for s in run.samples[task]}
        for label, condition in run.main(task).items():
            few = {sample.id for sample in run.samples[task][:SURVIVORS_OF]}
            for sample, found in _by_sample(run, condition, target, few).items():
                rows[sample].append({"label": label, **found})
        listed += [
            {
                "task": task,
                "id": s.id,
                "question": s.question,
                "gold": gold_in_words(s.gold),
                "rows": r,
            }
            for s in run.samples[task]
            if (r := rows[s.id])
        ]
    titles = {task: title_of(task) for task in run.tasks}
    return {"problems": listed, "titles": titles, "seeds": list(run.manifest.seeds)}


def _by_sample(
    run: Evaluation, condition: Condition, target: Path, with_texts: Collection[str]
) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for record in sorted(run.records[condition], key=lambda r: r.seed):
        if record.sample in found:
            found[record.sample]["grades"] += [record.correct]  # type: ignore[operator]
            continue
        name = f"{condition.spec}-{record.sample}"
        trace = _trace(run.folders[condition], name, target)
        found[record.sample] = {
            "grades": [record.correct],
            "answer": record.answer,
            "text": record.text,
            "survivors": _survivors(record, record.sample in with_texts),
            "p_correct": record.p_correct,
            "trace": trace,
            "story": _story(run.folders[condition] / "traces" / f"{name}.jsonl"),
        }
    return found


def _survivors(record: Record, with_texts: bool) -> list[list[object]]:
    """[number of equal ones, answer, score, text], most frequent first."""
    kinds: dict[tuple[str | None, str], list[object]] = {}
    for one in record.survivors:
        text = one.text if with_texts else ""
        row = kinds.setdefault((one.answer, text), [0, one.answer, one.score, text])
        row[0] = int(str(row[0])) + 1
    return sorted(kinds.values(), key=lambda row: -int(str(row[0])))


def _story(path: Path) -> list[list[object]]:
    """A recorded search in short: [step, score, text] whenever the leading look-ahead changed."""
    if not path.is_file():
        return []
    trace, told = read_trace(path), list[list[object]]()
    for step in trace:
        if not isinstance(step, Step) or np.isnan(step.score).all():
            continue
        best = int(np.nanargmax(step.score))
        pieces = [trace.pieces.get(token, "·") for token in step.clean[best].tolist()]
        text = "".join(pieces if "given" in trace.header else takewhile(_is_text, pieces))
        if not told or told[-1][2] != text:
            told.append([step.index + 1, round(float(step.score[best]), 3), text])
    return told


def _is_text(piece: str) -> bool:
    """Not a special token, which ends an answer."""
    return SPECIAL.fullmatch(piece) is None


def _trace(folder: Path, name: str, target: Path) -> str | None:
    """The trace of a search: its HTML page if there is one, else the trace file."""
    found = (folder / "traces" / f"{name}{suffix}" for suffix in (".html", ".jsonl"))
    path = next((path for path in found if path.is_file()), None)
    return None if path is None else Path(os.path.relpath(path, target)).as_posix()
