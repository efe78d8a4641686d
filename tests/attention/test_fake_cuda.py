"""Every kind on a simulated GPU: devices and dtypes of tensors, and values that the host reads."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import EMBED_DIM, make_layer
from tests.fixtures.fake_cuda import CUDA, empty, fake_cuda, move_to_gpu

B, T, S = 3, 5, 7
both_places = pytest.mark.parametrize("place", ["decoder", "cross"])


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Run a test in both precisions that GPUs use; fp16 takes the same code paths as bf16."""
    return request.param


def layer_for(kind: str) -> Attention:
    """Build a sublayer with dropout, on the CPU."""
    return make_layer(kind, dtype=torch.float32, dropout=0.1)


def inputs(place: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return query input (T, B, C) and key input: the same in self-attention, else (S, B, C)."""
    x = empty(T, B, EMBED_DIM, dtype=dtype)
    return x, empty(S, B, EMBED_DIM, dtype=dtype) if place == "cross" else x


def masks(place: str, keys: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return all combinations of masks that fairseq gives a sublayer in this place."""
    causal: list[Any] = [None]
    if place != "cross":
        mask = CausalMask(T, CUDA)
        causal += [mask, mask.hidden, empty(T, T, dtype=dtype)]
    padding = [None, empty(B, keys, dtype=torch.bool)]
    return [
        {"attn_mask": mask, "key_padding_mask": hidden}
        for mask, hidden in itertools.product(causal, padding)
    ]


def check(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert (tensor.device, tuple(tensor.shape), tensor.dtype) == (CUDA, shape, dtype)


@both_places
@pytest.mark.parametrize("training", [False, True])
def test_forward_stays_on_the_gpu(
    kind: str, place: str, dtype: torch.dtype, training: bool
) -> None:
    """Every combination of masks works, with weights or without, and the host reads nothing."""
    layer = layer_for(kind).train(training)
    with fake_cuda() as watch:
        move_to_gpu(layer, dtype)
        x, y = inputs(place, dtype)
        for given in masks(place, len(y), dtype):
            before = watch.fused_calls
            out, _ = layer(x, y, y, need_weights=False, **given)
            check(out, (T, B, EMBED_DIM), dtype)
            fused = kind != "tpa"  # its values are products
            # With dropout the values of mhe_add are wider than its keys.
            fused = fused and not (training and kind == "mhe_add")
            assert watch.fused_calls - before == fused
        out, weights = layer(x, y, y, need_head_weights=True, **given)
        check(out, (T, B, EMBED_DIM), dtype)
        check(weights, (layer.num_heads, B, T, len(y)), dtype)


FAULTS = {
    "a copy to the CPU": (lambda x: x + x.cpu().to(x.device), "has a tensor on the CPU"),
    "another dtype": (lambda x: x * x.double(), r"mul\.Tensor of \{"),
    "a hidden .item()": (lambda x: x * x.sum().item(), "asks the GPU for a value"),
    "positions of true values": (lambda x: x + len(x.nonzero()), "nonzero|not linked"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulated_gpu_detects_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above turn red if a sublayer has this fault."""
    broken, message = FAULTS[fault]
    layer, merge = layer_for("mha"), Attention.merge
    monkeypatch.setattr(Attention, "merge", lambda self, x: broken(merge(self, x)))
    with fake_cuda():
        move_to_gpu(layer, torch.bfloat16)
        x = empty(T, B, EMBED_DIM, dtype=torch.bfloat16)
        with pytest.raises(Exception, match=message):
            layer(x, x, x)
