"""Every kind on a simulated GPU: devices and dtypes of tensors, and values that the host reads."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.kernel import CausalMask
from tests.attention.conftest import EMBED_DIM, make_layer
from tests.fixtures.fake_cuda import CUDA, empty, fake_cuda, move_to_gpu

B, T, S = 3, 5, 7
#: The only function that reads a value from a GPU in training.
PADDING = "fairseq_mhe.attention.kernel.CausalMask.hides_padding"
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
    """Return all combinations of masks that fairseq gives a sublayer in this place, none first."""
    causal: list[Any] = [None]
    left, right = CausalMask(T, CUDA), CausalMask(T, CUDA)  # for padding on either side
    if place != "cross":
        causal += [left, right, left.hidden, empty(T, T, dtype=dtype)]
    padding = [None, empty(B, keys, dtype=torch.bool)]
    return [
        {"attn_mask": mask, "key_padding_mask": hidden}
        for mask, hidden in itertools.product(causal, padding)
        if mask is not right or hidden is not None  # without padding ``left`` is the same
    ]


def alternate(dtype: torch.dtype, number: int) -> bool:
    """Return a truth value that differs between the dtypes, and from one number to the next."""
    return (dtype == torch.float32) == (number % 2 == 0)


def check(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert (tensor.device, tuple(tensor.shape), tensor.dtype) == (CUDA, shape, dtype)


@both_places
def test_forward_stays_on_the_gpu(kind: str, place: str, dtype: torch.dtype) -> None:
    """Every combination of masks works, in training or evaluation, with weights or without.

    Those without masks, or for which the host reads a value, run in both modes; each other one runs
    in one mode in float32 and in the other mode in bfloat16.
    """
    layer = layer_for(kind)
    answers = {PADDING: True}  # True: some padding is on the left of a key
    with fake_cuda(answers) as watch:
        move_to_gpu(layer, dtype)
        x, y = inputs(place, dtype)
        for number, given in enumerate(masks(place, len(y), dtype)):
            watch.reads.clear()
            causal = isinstance(given["attn_mask"], CausalMask)
            reads = causal and given["key_padding_mask"] is not None
            modes = (False, True) if reads or number == 0 else (alternate(dtype, number),)
            for training in modes:
                before = watch.fused_calls
                out, _ = layer.train(training)(x, y, y, need_weights=False, **given)
                check(out, (T, B, EMBED_DIM), dtype)
                # No fused kernel returns the row sums of weights, which dropout changes from 1.
                assert watch.fused_calls - before == (not (training and layer.needs_row_sums))
            # Only the first layer of a step reads, for all layers.
            assert watch.reads.total() <= reads
            if watch.reads:
                answers[PADDING] = False  # for the next causal mask
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
    monkeypatch.setattr(Attention, "merge", lambda self, x, sums: broken(merge(self, x, sums)))
    with fake_cuda({PADDING: False}):
        move_to_gpu(layer, torch.bfloat16)
        x = empty(T, B, EMBED_DIM, dtype=torch.bfloat16)
        with pytest.raises(Exception, match=message):
            layer(x, x, x)
