"""Methods with a loop of their own against literal versions, written from their papers and authors' code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from s3dlm.diffusion.blocks import reveals
from s3dlm.engine import generate
from s3dlm.errors import TemperatureWarning
from s3dlm.extras.published import trees
from s3dlm.settings import Settings
from s3dlm.verifier import HOLE, Score, Verifier
from tests.laws.toy import (
    LENGTH,
    MASK,
    START,
    TOY,
    Canvas,
    ToyDenoiser,
    assert_agree,
    canvas_of,
    draw,
    filled,
    log_p,
    look_ahead,
    propose,
    revealed_logp,
    reward,
    sample,
    whole_runs,
)

PLACES = range(LENGTH)
ENOUGH = 3 / 7  # a reward that some texts have exactly, and that is enough, too


def rewards(method: str, runs: int, **options: object) -> np.ndarray:
    found = whole_runs(method, runs, **options)
    return np.array([reward(canvas_of(one.text)) for one in found])


def literal_prism(count: int, rng: np.random.Generator) -> float:
    """Prism's hierarchical search for one block of four steps: it may narrow from 10 % to 60 % of them."""
    kept, first, last, allowed = count // 4, int(0.4), int(2.4), int(0.4)
    particles: list[Canvas] = [START] * count
    sure: list[dict[int, float]] = [{} for _ in particles]  # by position, when it was revealed
    step = 0
    while True:
        width = max(kept, math.ceil(count * 1.8 ** -(step - first)))
        if allowed <= step < last and len(particles) > width:
            order = sorted(range(len(particles)), key=lambda i: -look_ahead(particles[i]))
            seen: set[Canvas] = set()
            chosen = [
                i
                for i in order
                if not (filled(particles[i]) in seen or seen.add(filled(particles[i])))
            ]
            chosen = (chosen + [i for i in order if i not in chosen])[: kept // 2]
            copies, confidences = [], []
            for number, i in enumerate(chosen):
                many = width // len(chosen) + (number < width % len(chosen))
                for copy in range(many):
                    canvas, known = list(particles[i]), dict(sure[i])
                    if copy:
                        pool = sorted(known, key=known.__getitem__)[:6]
                        for place in rng.permutation(pool)[:2].tolist():
                            canvas[place] = MASK
                            del known[place]
                    copies.append(tuple(canvas))
                    confidences.append(known)
            particles, sure, allowed = copies, confidences, step + 4
        if all(MASK not in canvas for canvas in particles):
            break
        for i, canvas in enumerate(particles):
            if MASK in canvas:
                particles[i], gained = propose(canvas, PLACES, 1, rng)
                (place,) = [p for p in PLACES if canvas[p] != particles[i][p]]
                sure[i][place] = gained
        step += 1
    return max(map(reward, particles))


def test_prism_is_its_authors_search() -> None:
    rng = np.random.default_rng(5)
    literal = np.array([literal_prism(8, rng) for _ in range(900)])
    found = rewards("prism", 250, particles=8, steps=LENGTH)
    assert_agree(found, literal)


def literal_order_token(beams: int, adds_up: bool, rng: np.random.Generator) -> float:
    """Whole texts drawn where a block begins, scored in that block by one pass with all of it masked."""
    states: list[tuple[Canvas, float]] = [(START, 0.0)]
    schedule = reveals(LENGTH, LENGTH, 2)
    for index, reveal in enumerate(schedule):
        block = range(reveal.start, reveal.stop)
        if index and schedule[index - 1].start == reveal.start:
            states = [(propose(x, block, reveal.count, rng)[0], score) for x, score in states]
            continue
        children = []
        for canvas, before in states:
            p = np.exp(log_p(canvas))
            for _ in range(beams):
                text = [draw(canvas, i, rng) if t == MASK else t for i, t in enumerate(canvas)]
                hidden = tuple(MASK if i in block else t for i, t in enumerate(text))
                likely = sum(log_p(hidden)[i, text[i]] for i in block)
                eager = max(block, key=lambda i: p[i, text[i]])
                child = tuple(text[i] if i == eager else t for i, t in enumerate(canvas))
                children.append((child, likely + before * adds_up))
        states = sorted(children, key=lambda child: -child[1])[:beams]
    return reward(states[0][0])


@pytest.mark.parametrize("adds_up", [True, False])
def test_order_token_search_is_its_papers_algorithm(adds_up: bool) -> None:
    rng = np.random.default_rng(6)
    literal = np.array([literal_order_token(3, adds_up, rng) for _ in range(900)])
    options = {"particles": 3, "steps": LENGTH, "block_length": 2, "adds_up": adds_up}
    found = rewards("order_token", 250, **options)
    assert_agree(found, literal)


def literal_lookum(pool: int, lam: float, rng: np.random.Generator) -> float:
    """Two sets of positions out of the surest few; one of the two by exp(−λ·mean entropy) of the rest.
    How likely the tokens of the text were, each when it was revealed."""
    canvas, likelihood = START, 1.0
    for reveal in reveals(LENGTH, 2, LENGTH):
        children, value = [], []
        for _ in range(2):
            p = np.exp(log_p(canvas))
            drawn = {i: draw(canvas, i, rng) for i, t in enumerate(canvas) if t == MASK}
            surest = sorted(drawn, key=lambda i: -p[i, drawn[i]])[:pool]
            chosen = rng.permutation(surest)[: reveal.count].tolist()
            chosen += [i for i in sorted(drawn, key=lambda i: -p[i, drawn[i]]) if i not in surest][
                : reveal.count - len(chosen)
            ]
            child = tuple(drawn[i] if i in chosen else t for i, t in enumerate(canvas))
            entropy = [
                -(np.exp(q) * q).sum()
                for q, t in zip(log_p(child), child, strict=True)
                if t == MASK
            ]
            children.append(child)
            value.append(-float(np.mean(entropy)) if entropy else 0.0)
        weight = np.exp(lam * np.array(value))
        before, canvas = canvas, children[int(rng.choice(2, p=weight / weight.sum()))]
        likelihood *= math.exp(revealed_logp(before, canvas))
    return likelihood


def test_lookum_is_its_papers_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    from s3dlm.diffusion import schedule

    monkeypatch.setattr(schedule, "POOL", 3)
    rng = np.random.default_rng(7)
    literal = np.array([literal_lookum(3, 40.0, rng) for _ in range(900)])
    found = whole_runs("lookum", 300, lam=40.0, steps=2)
    likelihood = np.array([math.exp(one.survivors[0].logp) for one in found])
    assert_agree(likelihood, literal)
    unweighed = np.array([literal_lookum(3, 0.0, rng) for _ in range(900)])
    any_place = np.array([literal_lookum(4, 40.0, rng) for _ in range(900)])
    for other in (unweighed, any_place):
        assert abs(literal.mean() - other.mean()) > 4 * math.hypot(literal.std(), other.std()) / 30


def literal_unmaskfork(texts: int, shares: Sequence[float]) -> tuple[Canvas, int, int]:
    """A tree over deterministic ways to decode, to these shares of masks; every canvas is computed once."""
    seen: list[Canvas] = []

    def decode(canvas: Canvas, way: tuple[str, int], left: float) -> Canvas:
        while canvas.count(MASK) > left:
            seen.append(canvas)
            p = np.sort(np.exp(log_p(canvas)))
            first = canvas.index(MASK)
            block = range(first // way[1] * way[1], first // way[1] * way[1] + way[1])
            eager = {
                "low_confidence": p[:, -1],
                "margin": p[:, -1] - p[:, -2],
                "entropy": (p * np.log(p)).sum(1),
            }[way[0]]
            best = max((i for i in block if canvas[i] == MASK), key=lambda i: eager[i])
            canvas = tuple(filled(canvas)[i] if i == best else t for i, t in enumerate(canvas))
        return canvas

    ways = [(policy, size) for policy in ("low_confidence", "margin", "entropy") for size in (2, 4)]
    tree: dict[tuple[int, ...], tuple[Canvas, list[float]]] = {(): (START, [])}
    best = (-1.0, START)
    for _ in range(texts):
        node: tuple[int, ...] = ()
        while len(node) < len(shares) and all((*node, i) in tree for i in range(6)):
            visits = len(tree[node][1])
            node = max(
                ((*node, i) for i in range(6)),
                key=lambda n: np.mean(tree[n][1]) + math.sqrt(math.log(visits) / len(tree[n][1])),
            )
        if len(node) < len(shares):
            action = next(i for i in range(6) if (*node, i) not in tree)
            canvas = decode(tree[node][0], ways[action], int(shares[len(node)] * LENGTH))
            node = (*node, action)
            tree[node] = (canvas, [])
        text = decode(tree[node][0], ways[0], 0)
        for depth in range(len(node) + 1):
            tree[node[:depth]][1].append(reward(text))
        best = max(best, (reward(text), text), key=lambda one: one[0])
    return best[1], len(set(seen)), len(seen)


def test_unmaskfork_is_its_papers_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several toys, as nothing is by chance: the same text as the literal version, and as many passes."""
    tenths = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
    assert pytest.approx(tenths) == trees.RATIOS
    differ = 0
    for toy in range(8):

        @cache
        def logits(canvas: Canvas, toy: int = toy) -> np.ndarray:
            seed = sum((token + 1) * 5**place for place, token in enumerate(canvas))
            return np.random.default_rng([toy, seed]).normal(size=(LENGTH, 4)) * 1.2

        monkeypatch.setattr(ToyDenoiser, "logits", staticmethod(logits))
        for texts, shares in (
            (1, tenths),
            (5, tenths),
            (12, tenths),
            (40, tenths),
            (40, tenths[4:6]),
        ):
            monkeypatch.setattr(trees, "RATIOS", shares)  # few: a tree that has no more forks
            text, passes, unshared = literal_unmaskfork(texts, shares)
            options = {"particles": texts, "steps": LENGTH, "block_length": 2}
            result, _ = sample("unmaskfork", 0, **options)
            assert reward(canvas_of(result.text)) == reward(text)
            assert (result.nfe, result.nfe_logical) == (passes, unshared)
            first, _ = sample("unmaskfork", 1, selection="first", **options)
            assert [one.text for one in first.survivors] == [one.text for one in result.survivors]
            differ += first.text != result.text
    assert differ > 4


class Partial(Verifier):
    """Likes twos, in partial texts as well."""

    name, satisfied_at = "partial", ENOUGH

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(reward(canvas_of(text)))

    def score_partial(self, prompt: str, text: str) -> Score:
        return Score(float(np.mean([{"2": 1.0, HOLE: 0.4}.get(mark, 0.1) for mark in text])))


def literal_vgb(rng: np.random.Generator) -> tuple[float, int]:
    """One walk with momentum, written with the coefficients 1/C(n − 1, k); its reward, and its passes."""

    def value(canvas: Canvas) -> float:
        return float(np.mean([{2: 1.0, MASK: 0.4}.get(token, 0.1) for token in canvas]))

    canvas, onward, passes = START, True, 0
    for move in range(9 * LENGTH):
        known = [i for i, token in enumerate(canvas) if token != MASK]
        hidden = [i for i, token in enumerate(canvas) if token == MASK]
        passes += bool(hidden)
        p = np.exp(log_p(canvas))
        ahead: list[tuple[Canvas, float]] = []
        surest = sorted(hidden, key=lambda i: -p[i].max())[:8]
        for i in surest:
            for token, count in enumerate(rng.multinomial(8, p[i])):
                child = (*canvas[:i], token, *canvas[i + 1 :])
                scale = len(hidden) / len(surest) / math.comb(LENGTH - 1, len(known))
                ahead += [(child, scale * count / 8 * value(child))] * bool(count)
        back: list[tuple[Canvas, float]] = []
        for i in known:
            parent = (*canvas[:i], MASK, *canvas[i + 1 :])
            back.append((parent, value(canvas) / math.comb(LENGTH - 1, len(known) - 1)))
        mass = {True: sum(w for _, w in ahead), False: sum(w for _, w in back)}
        if move >= 8 * LENGTH or not known:
            onward = True
        elif not hidden:
            onward = False
        else:
            turn = mass[not onward] - min(mass.values())  # χ = 1
            if rng.random() * (mass[onward] + turn) >= mass[onward]:
                onward = not onward
        moves = ahead if onward else back
        weight = np.array([w for _, w in moves])
        canvas = moves[int(rng.choice(len(moves), p=weight / weight.sum()))][0]
        if MASK not in canvas and (move + 1 >= 8 * LENGTH or reward(canvas) >= ENOUGH):
            break
    return reward(canvas), passes


def test_vgb_is_its_authors_walk() -> None:
    assert trees.PLACES == trees.TOKENS == trees.BACK == trees.MOVES_PER_POSITION == 8
    rng = np.random.default_rng(8)
    literal = [literal_vgb(rng) for _ in range(900)]
    found = whole_runs("vgb", 160, Partial(), particles=1)
    rewarded = np.array([reward(canvas_of(one.text)) for one in found])
    assert_agree(rewarded, np.array([one for one, _ in literal]))
    assert_agree(1 / np.array([one.nfe for one in found]), 1 / np.array([n for _, n in literal]))


def test_a_walk_of_vgb_that_finds_nothing_good_only_goes_ahead_after_eight_moves_per_position() -> (
    None
):
    """It ends as soon as its text is full then: at once, or after as many moves as positions are masked."""

    class Unhappy(Partial):
        satisfied_at = 1.0

        def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
            return Score(0.5)

    left = set[int]()
    for seed in range(12):
        _, steps = sample("vgb", seed, Unhappy())
        hidden = int((steps[8 * LENGTH - 1].tokens == MASK).sum())
        assert len(steps) == 8 * LENGTH + hidden
        left.add(hidden)
    assert left >= {0, 2}


def test_walks_of_vgb_without_chance_all_have_their_ways() -> None:
    """At temperature 0 there is one draw for all walks, and none of them is left without."""
    with pytest.warns(TemperatureWarning):
        settings = Settings("vgb", temperature=0.0, gen_length=LENGTH, particles=3)
    result = generate(TOY, "toy", settings=settings, verifier=Partial())
    assert len(result.survivors) == 3
    assert all(str(MASK) not in one.text for one in result.survivors)
