"""Every kind of attention on a GPU that is not there: devices, dtypes, and what it is asked."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.kernel import CausalMask
from tests.attention.conftest import EMBED_DIM, PLACES, make_layer
from tests.fixtures.fake_cuda import CUDA, empty, fake_cuda, moved

B, T, S = 3, 5, 7
#: The only place that asks a GPU for a value in training.
PADDING = "fairseq_mhe.attention.kernel.CausalMask.hides_padding"
both_places = pytest.mark.parametrize("place", ["decoder", "cross"])


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """What models are trained and translated in on GPUs; fp16 takes the ways of bf16."""
    return request.param


def layer_for(kind: str) -> Attention:
    """A sublayer with dropout, on the CPU."""
    return make_layer(kind, dtype=torch.float32, dropout=0.1)


def inputs(place: str, dtype: torch.dtype, **options: Any) -> tuple[Tensor, Tensor]:
    """Queries (T, B, C), and keys (S, B, C), which in self-attention are the queries."""
    x = empty(T, B, EMBED_DIM, dtype=dtype, **options)
    return x, empty(S, B, EMBED_DIM, dtype=dtype, **options) if place == "cross" else x


def masks(place: str, keys: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Every combination of masks that fairseq gives a sublayer in this place, first none."""
    causal: list[Any] = [None]
    left, right = CausalMask(T, CUDA), CausalMask(T, CUDA)  # for padding on either side
    if place != "cross":
        causal += [left, right, left.hidden, empty(T, T, dtype=dtype)]
    padding = [None, empty(B, keys, dtype=torch.bool)]
    return [
        {"attn_mask": mask, "key_padding_mask": hidden}
        for mask, hidden in itertools.product(causal, padding)
        if mask is not right or hidden is not None  # without padding both are one
    ]


def turn(dtype: torch.dtype, number: int) -> int:
    """0 or 1, in turns from dtype to dtype and from number to number."""
    return (int(dtype == torch.float32) + number) % 2


def check(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert (out.device, tuple(out.shape), out.dtype) == (CUDA, shape, dtype)


@both_places
def test_forward(kind: str, place: str, dtype: torch.dtype) -> None:
    """With every mask, in training and in evaluation, with weights and without.

    What is asked, or hidden by nothing, is in both modes; else a mask is in the other mode in the
    next dtype.
    """
    layer = layer_for(kind)
    answers = {PADDING: True}
    with fake_cuda(answers) as watch:
        moved(layer, dtype)
        x, y = inputs(place, dtype)
        for number, given in enumerate(masks(place, len(y), dtype)):
            watch.asked.clear()
            both = (
                isinstance(given["attn_mask"], CausalMask) and given["key_padding_mask"] is not None
            )
            modes = (False, True) if both or number == 0 else (bool(turn(dtype, number)),)
            for training in modes:
                before = watch.fused
                out, _ = layer.train(training)(x, y, y, need_weights=False, **given)
                check(out, (T, B, EMBED_DIM), dtype)
                # No kernel gives the sums of a row's weights, which differ from 1 with dropout.
                assert watch.fused - before == (not (training and layer.needs_row_sums))
            # The first asks for all layers of a step.
            assert watch.asked.total() <= both
            if watch.asked:
                answers[PADDING] = False
        out, weights = layer(x, y, y, need_head_weights=True, **given)
        check(out, (T, B, EMBED_DIM), dtype)
        check(weights, (layer.num_heads, B, T, len(y)), dtype)


@both_places
def test_backward(kind: str, place: str, dtype: torch.dtype) -> None:
    """Without masks or with both, in turns: each in every dtype, and in both places."""
    layer = layer_for(kind).train()
    with fake_cuda({PADDING: False}):
        moved(layer, dtype)
        x, y = inputs(place, dtype, requires_grad=True)
        without, *_, with_both = masks(place, len(y), dtype)
        given = (without, with_both)[turn(dtype, PLACES.index(place))]
        layer(x, y, y, need_weights=False, **given)[0].sum().backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad is not None, name
            check(parameter.grad, tuple(parameter.shape), dtype)


FAULTS = {
    "a copy to the CPU": (lambda x: x + x.cpu().to(x.device), "has a tensor on the CPU"),
    "another dtype": (lambda x: x * x.double(), r"mul\.Tensor of \{"),
    "a hidden .item()": (lambda x: x * x.sum().item(), "asks the GPU for a value"),
    "positions of true values": (lambda x: x + len(x.nonzero()), "nonzero|not linked"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above turn red where a sublayer has one."""
    broken, message = FAULTS[fault]
    layer, merge = layer_for("mha"), Attention.merge
    monkeypatch.setattr(Attention, "merge", lambda self, x, sums: broken(merge(self, x, sums)))
    with fake_cuda({PADDING: False}):
        moved(layer, torch.bfloat16)
        x = empty(T, B, EMBED_DIM, dtype=torch.bfloat16)
        with pytest.raises(Exception, match=message):
            layer(x, x, x)
