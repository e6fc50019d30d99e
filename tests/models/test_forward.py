"""What a forward boils logits down to, against plain softmax arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from s3dlm.models import forward as module
from s3dlm.models.base import Denoiser
from s3dlm.models.forward import Forward, Prediction, Rows
from s3dlm.models.sampling import GROUP, shift, sums
from tests.models.networks import make_rows, random_network

MASK = 5


class Table(Denoiser):
    """Logits that depend on the token and its place alone; counts what it is asked."""

    mask_id, context = MASK, 128

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self.vocabulary = vocabulary
        random = torch.Generator().manual_seed(seed)
        self.table = torch.randn(self.context, vocabulary, generator=random) * 2
        self.heads = 0
        self.widest = 0

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        places = torch.arange(tokens.shape[1]).expand(tokens.shape)
        return torch.stack([places, tokens], dim=2).float()

    def head(self, features: Tensor) -> Tensor:
        self.heads += len(features)
        self.widest = max(self.widest, len(features))
        return self.table[features[:, 0].long()] + 0.01 * features[:, 1:]


def rows(canvas: list[list[int]], prompt: list[int], draws: int = 4, **changes: object) -> Rows:
    tokens = np.array(canvas)
    options: dict[str, object] = {
        "start": 0,
        "stop": tokens.shape[1],
        "temperature": 1.0,
        "look_ahead": True,
        "statistics": True,
        "label": "step 1 of 1, prompt 'x'",
        **changes,
    }
    for name in ("start", "stop"):
        options[name] = np.broadcast_to(options[name], len(tokens))  # type: ignore[call-overload]
    uniforms = np.random.default_rng(0).random((len(tokens), options["stop"].max(), draws))  # type: ignore[attr-defined]
    return Rows(np.array(prompt), tokens, tokens == MASK, uniforms=uniforms, **options)  # type: ignore[arg-type]


def test_top_confidence_margin_and_entropy_are_those_of_the_softmax() -> None:
    model = Table(40)
    request = rows([[MASK, 7, MASK], [MASK, MASK, 9]], [1, 2])
    (found,) = Forward(model)([request])
    for row, place in zip(*np.nonzero(request.masked), strict=True):
        logits = model.table[place + 2].double() + 0.01 * MASK
        logits[MASK] = -torch.inf
        p = torch.softmax(logits, 0)
        two = p.topk(2).values
        assert found.top[row, place] == int(p.argmax())
        assert found.top_logp[row, place] == pytest.approx(float(p.max().log()), abs=1e-5)
        assert found.margin is not None
        assert found.entropy is not None
        assert found.margin[row, place] == pytest.approx(float(two[0] - two[1]), abs=1e-5)
        assert found.entropy[row, place] == pytest.approx(
            float(torch.special.entr(p).sum()), abs=1e-4
        )
        for token, logp in zip(found.draws[row, place], found.draws_logp[row, place], strict=True):
            assert logp == pytest.approx(float(p[token].log()), abs=1e-5)
    assert found.top[0, 1] == 7  # what is known stays


def test_only_what_is_asked_for_reaches_the_head_and_in_bounded_chunks() -> None:
    model = Table(40)
    request = rows([[MASK] * 8] * 3, [1], start=0, stop=4, look_ahead=False)
    Forward(model)([request])
    assert model.heads == 3 * 4
    model = Table(40)
    Forward(model, logits_bytes=40 * 4 * 5)([rows([[MASK] * 8] * 3, [1], start=0, stop=4)])
    assert (model.heads, model.widest) == (3 * 8, 5)


def test_chunks_batches_and_company_change_nothing() -> None:
    requests = [
        rows([[MASK, 7, MASK, 3]] * 2, [1, 2]),
        rows([[MASK] * 6], list(range(6, 50)), temperature=0.5),
        rows([[3, MASK]] * 3, [9]),
    ]
    whole = Forward(Table(40))(requests)
    for options in ({"max_tokens": 1}, {"logits_bytes": 1}, {"max_tokens": 70}):
        pieces = Forward(Table(40), **options)(requests)
        alone = [Forward(Table(40))([one])[0] for one in requests]
        for one, other, third in zip(whole, pieces, alone, strict=True):
            np.testing.assert_array_equal(one.draws, other.draws)
            np.testing.assert_array_equal(one.top, third.top)
            np.testing.assert_array_equal(one.top_logp, other.top_logp)
            np.testing.assert_array_equal(one.draws_logp, third.draws_logp)


def test_the_rows_of_a_request_may_be_run_in_several_calls() -> None:
    canvas = [[MASK, 7, MASK, 3], [MASK, MASK, 1, 2], [4, MASK, MASK, MASK]]
    request = rows(
        canvas, [1, 2], start=np.array([0, 0, 1]), stop=4, temperature=np.array([0.5, 1.0, 2.0]),
        asked=np.arange(24).reshape(3, 4, 2),
    )  # fmt: skip
    (whole,) = Forward(Table(40))([request])
    parts = [Forward(Table(40))([request.take(slice(*each))])[0] for each in ((0, 1), (1, 3))]
    joined = Prediction.join(parts)
    for name in ("top", "top_logp", "draws", "draws_logp", "margin", "entropy", "asked_logp"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))


@pytest.mark.parametrize("vocabulary", [7, 4 * GROUP, 8 * GROUP + 3, 16 * GROUP])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_samples_follow_the_tempered_softmax(vocabulary: int, temperature: float) -> None:
    random = torch.Generator().manual_seed(1)
    logits = torch.randn(1, vocabulary, generator=random) * 3
    logits[0, MASK] = -torch.inf
    count = 200_000
    uniforms = torch.from_numpy(np.random.default_rng(2).random((1, count))).float()
    drawn = shift(logits.clone(), temperature, chunk=1).sample(uniforms)
    exact = torch.softmax(logits[0].double() / temperature, 0).numpy()
    seen = np.bincount(drawn[0].numpy(), minlength=vocabulary) / count
    assert seen[MASK] == 0
    assert np.abs(seen - exact).max() < 4.5 * np.sqrt(0.25 / count)
    assert 0.5 * np.abs(seen - exact).sum() < 0.02 + 0.5 * np.sqrt(vocabulary / count)


def test_extreme_uniforms_never_draw_an_impossible_token() -> None:
    for vocabulary in (7, 8 * GROUP):
        logits = torch.full((1, vocabulary), -torch.inf)
        logits[0, [2, vocabulary // 2]] = torch.tensor([0.0, -1e-3])
        uniforms = torch.tensor([[0.0, 1.0, 1 - 2**-24, 0.5, 1e-38]])
        drawn = shift(logits, 1.0, chunk=1).sample(uniforms)
        assert set(drawn[0].tolist()) == {2, vocabulary // 2}


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-45, 5e-324])
@pytest.mark.parametrize("vocabulary", [7, 8 * GROUP])
def test_the_coldest_samples_are_the_best_token(vocabulary: int, temperature: float) -> None:
    random = torch.Generator().manual_seed(6)
    logits = 9 * torch.randn(5, vocabulary, generator=random)
    logits[:, MASK] = -torch.inf
    drawn = shift(logits.clone(), temperature, chunk=2).sample(torch.rand(5, 20))
    assert torch.equal(drawn, logits.argmax(1)[:, None].expand(-1, 20))


@pytest.mark.parametrize("temperature", [0.0, 0.05, 0.7, 1.0, 3.0])
def test_rows_far_from_zero_are_read_as_exactly_as_others_and_touch_no_neighbour(
    temperature: float,
) -> None:
    random = torch.Generator().manual_seed(3)
    plain = torch.randn(6, 8 * GROUP, generator=random)
    far = plain + torch.tensor([0.0, 99.0, -99.0, 30.0, 0.0, 41.0])[:, None]
    uniforms = torch.rand(6, 50, generator=random)
    read = shift(far.clone(), temperature, chunk=4)
    drawn = read.sample(uniforms)
    exact = torch.log_softmax(far.double(), 1)
    torch.testing.assert_close(read.best_logp.double(), exact.amax(1), atol=2e-5, rtol=0)
    torch.testing.assert_close(read.logp(drawn).double(), exact.gather(1, drawn), atol=2e-5, rtol=0)
    assert torch.equal(read.best, far.argmax(1))
    near = shift(plain.clone(), temperature, chunk=4)
    agree = (near.sample(uniforms) == drawn).float().mean()
    assert agree > 0.95  # the same draws but for rounding of the far ones
    for row in range(6):
        alone = shift(far[row : row + 1].clone(), temperature, chunk=4)
        assert torch.equal(alone.best_logp, read.best_logp[row : row + 1])
        assert torch.equal(alone.sample(uniforms[row : row + 1]), drawn[row : row + 1])


def test_logits_beyond_the_limit_are_clamped() -> None:
    model = Table(8)
    model.table[1, :3] = torch.tensor([500.0, 300.0, -500.0])
    (found,) = Forward(model)([rows([[MASK]], [1])])
    assert found.top_logp[0, 0] == pytest.approx(np.log(0.5), abs=1e-3)  # both are 100 then
    assert module.LOGIT_LIMIT == 100.0


def test_a_row_alone_is_summed_as_in_company_whatever_the_threads() -> None:
    rows = torch.rand(7, 126_464, generator=torch.Generator().manual_seed(4))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = sums(rows)
        for count in (1, 2, 3):
            assert torch.equal(sums(rows[:count]), together[:count])
            assert torch.equal(sums(rows[-count:]), together[-count:])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dual", [None, 0])
def test_what_an_approximate_pass_says_is_not_remembered(dual: int | None) -> None:
    (found,) = Forward(random_network(dual=dual))([make_rows(20, kept=[None] * 3)])
    assert (found.kept[0] is None) == (dual is not None)
