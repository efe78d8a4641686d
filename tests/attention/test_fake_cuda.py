"""Every kind on a simulated GPU: devices and dtypes of tensors, and values that the host reads."""

import itertools

import pytest
import torch

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import EMBED_DIM, make_layer
from tests.fixtures.fake_cuda import CUDA, empty, fake_cuda, move_to_gpu

B, T, S, DTYPE = 3, 5, 7, torch.bfloat16


@pytest.mark.parametrize("place", ["decoder", "cross"])
@pytest.mark.parametrize("training", [False, True])
def test_forward_stays_on_the_gpu(kind: str, place: str, training: bool) -> None:
    """Every combination of masks works, with weights or without, and the host reads nothing."""
    layer = make_layer(kind, dtype=torch.float32, dropout=0.1).train(training)
    with fake_cuda() as watch:
        move_to_gpu(layer, DTYPE)
        x = empty(T, B, EMBED_DIM, dtype=DTYPE)
        y = empty(S, B, EMBED_DIM, dtype=DTYPE) if place == "cross" else x
        causal = CausalMask(T, CUDA)
        masks = [None]
        if place == "decoder":
            masks += [causal, causal.hidden, empty(T, T, dtype=DTYPE)]
        for mask, padding in itertools.product(masks, [None, empty(B, len(y), dtype=torch.bool)]):
            given = {"attn_mask": mask, "key_padding_mask": padding}
            before = watch.fused_calls
            out, _ = layer(x, y, y, need_weights=False, **given)
            # The values of tpa are products; those of mhe_add are wider than keys under dropout.
            unfused = kind == "tpa" or (training and kind == "mhe_add")
            assert watch.fused_calls == before + (not unfused)
            _, weights = layer(x, y, y, need_head_weights=True, **given)
            assert (out.device, out.shape, out.dtype) == (CUDA, x.shape, DTYPE)
            assert (weights.device, weights.dtype) == (CUDA, DTYPE)
            assert weights.shape == (layer.num_heads, B, T, len(y))


FAULTS = {
    "a copy to the CPU": lambda x: x + x.cpu().to(x.device),
    "another dtype": lambda x: x * x.double(),
    "a hidden .item()": lambda x: x * x.sum().item(),
    "positions of true values": lambda x: x + len(x.nonzero()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulated_gpu_detects_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above turn red if a sublayer has this fault."""
    layer, merge = make_layer("mha", dtype=torch.float32), Attention.merge
    monkeypatch.setattr(Attention, "merge", lambda self, x: FAULTS[fault](merge(self, x)))
    with fake_cuda():
        move_to_gpu(layer, DTYPE)
        x = empty(T, B, EMBED_DIM, dtype=DTYPE)
        with pytest.raises(Exception, match=r"on the CPU|Tensor of|asks the GPU|nonzero|linked"):
            layer(x, x, x)
