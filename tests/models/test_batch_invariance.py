"""A row's features are its own, to the last bit, on CPU.

What holds, with one thread or two, as measured on an AVX-512 CPU with MKL: with widths (and inner
widths) up to 768 and a padded length up to 384, a row's features have the same bits whatever rows
share its batch and however far it is padded. Beyond 384 positions the bits still do not depend on
the other rows, but may depend on the length the batch is padded to; on an AMD EPYC that begins beyond
192 (208 to 320 differ, 384 does not), so rows of other lengths can change a result's last digits. Matrix products with an inner
width of 832 and more were seen to depend on the number of rows (with two threads). The limits
probably come from how the libraries split long sums; another CPU may draw them elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from s3dlm.models.transformer import Transformer, TransformerConfig
from tests.models.networks import SHAPES, random_network
from tools.networks import initialise

SMALL = TransformerConfig(
    vocabulary=512, width=128, layers=3, heads=4, hidden=384, mask_id=3, context=1024
)
GROUPED = TransformerConfig(
    vocabulary=512, width=192, layers=2, heads=6, hidden=768, mask_id=3, context=1024,
    key_value_heads=2, qkv_bias=True, qk_norm=True,
)  # fmt: skip


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def network(config: TransformerConfig) -> Transformer:
    built = Transformer(config)
    initialise(built, torch.Generator().manual_seed(1))
    return built.requires_grad_(False)


def some_tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 512, (rows, length), generator=torch.Generator().manual_seed(rows))


def padded(model: Transformer, tokens: torch.Tensor, total: int) -> torch.Tensor:
    length = tokens.shape[1]
    keys = torch.arange(total).expand(tokens.shape[0], -1) < length
    return model.encode(F.pad(tokens, (0, total - length), value=9), keys)[:, :length]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("config", [SMALL, GROUPED], ids=["plain", "grouped"])
@pytest.mark.parametrize("length", [1, 33, 61, 190])
def test_neither_the_batch_nor_padding_changes_a_bit(
    config: TransformerConfig, length: int
) -> None:
    model, tokens = network(config), some_tokens(32, length)
    together = model.encode(tokens)
    for rows in (1, 2, 3, 8):
        assert torch.equal(model.encode(tokens[:rows]), together[:rows])
        assert torch.equal(model.encode(tokens[-rows:]), together[-rows:])
    for total in (length, length + 1, -(-length // 32) * 32, 384):
        assert torch.equal(padded(model, tokens[:3], total), together[:3])


@torch.inference_mode()
def test_logits_do_not_depend_on_how_many_are_asked_for_nor_where_they_are_written() -> None:
    model = network(SMALL)
    features = model.encode(some_tokens(4, 64)).flatten(0, 1)
    together, room = model.head(features), torch.full((128, model.vocabulary), torch.nan)
    for count in (1, 2, 3, 15, 16, 17, 100):
        assert torch.equal(model.head(features[:count]), together[:count])
        assert torch.equal(model.head(features[-count:]), together[-count:])
        written = model.head(features[:count], out=room)
        assert written.data_ptr() == room.data_ptr()
        assert torch.equal(written, together[:count])


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="torch has no bfloat16 attention without vector instructions",
)
def test_bfloat16_rows_are_their_own_too() -> None:
    model, tokens = network(SMALL).bfloat16(), some_tokens(8, 100)
    together = model.encode(tokens)
    assert torch.equal(model.encode(tokens[:1]), together[:1])
    assert torch.equal(padded(model, tokens[:3], 160), together[:3])


def test_what_inference_keeps_does_not_poison_training() -> None:
    model = network(SMALL).requires_grad_(True)
    text = some_tokens(4, 24)
    with torch.inference_mode():
        model.encode(text)
    optimiser, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for _ in range(12):
        loss = F.cross_entropy(model(text).flatten(0, 1), text.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert losses[-1] < losses[0] - 1


@pytest.mark.parametrize("shape", SHAPES)
def test_what_alone_is_wanted_has_the_bits_that_it_has_among_all(shape: str) -> None:
    model = random_network(**SHAPES[shape])
    tokens, wanted = some_tokens(3, 48) % 250, torch.tensor([5, 47, 50, 51, 140])
    keys = torch.arange(48).expand(3, -1) < torch.tensor([[48], [48], [47]])
    whole, some = model.encode(tokens, keys), model.encode_some(tokens, keys, wanted)
    assert torch.equal(some.flatten(0, 1)[wanted], whole.flatten(0, 1)[wanted])
