"""Every kind, place and precision against float32 on the CPU; on a GPU if there is one."""

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import build_attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import HEADS, fast, random, right_padding

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Greatest allowed difference, relative to the greatest number: fp16 has 11 bits, bf16 8.
TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
if DEVICE == "cpu":  # fp16 takes the same code paths, and test_kinds.py is stricter than float32
    TOLERANCES = {"bfloat16": 3e-2}


@pytest.mark.parametrize("precision", TOLERANCES)
def test_every_precision_trains_and_decodes_as_float32(
    kind: str, place: str, precision: str
) -> None:
    """Weights and inputs are rounded first, so that only the computation differs."""
    dtype, sizes = getattr(torch, precision), (33, 4, 256)  # T, B, C
    layer = build_attention(kind, sizes[2], HEADS, bias=True).to(dtype).float()
    x, y = (random(*sizes, dtype=dtype, seed=seed) for seed in (0, 1))
    padding = right_padding(*sizes[1::-1]) if place != "decoder" else None

    def results(device: str, dtype: torch.dtype, plain: bool) -> list[Tensor]:
        """Return the output, 0 at padding, and gradients; ``plain``: by no fused kernel."""
        query, memory = (z.to(device, dtype).requires_grad_() for z in (x, y))
        memory = memory if place == "cross" else query
        hidden = None if padding is None else padding.to(device)
        mask = CausalMask(sizes[0], torch.device(device)) if place == "decoder" else None
        masks = {"key_padding_mask": hidden, "attn_mask": mask, "need_weights": plain}
        out, _ = layer.to(device, dtype)(query, memory, memory, **masks)
        if place == "encoder":
            out = out * ~hidden.t().unsqueeze(-1)
        # A sum, since the gradients of a mean are too small for fp16 without a loss scale.
        out.float().square().sum().backward()
        by_weights = torch.cat([p.grad.flatten() for p in layer.parameters()])
        layer.zero_grad()
        return [out.detach(), query.grad, by_weights]

    expected = results("cpu", torch.float32, plain=True)
    actual = results(DEVICE, dtype, plain=False)
    if place != "encoder":
        given = {"incremental_state": {}, "need_weights": False, "static_kv": place == "cross"}
        if place == "cross":
            given |= {"key": y.to(DEVICE), "key_padding_mask": padding.to(DEVICE)}
        decoder = fast(layer, place).to(DEVICE, dtype)
        with torch.no_grad():
            steps = [decoder(step, **given)[0] for step in x.to(DEVICE).split(1)]
        actual.append(torch.cat(steps))
        expected.append(expected[0])
    for result, exact in zip(actual, expected, strict=True):
        error = (result.float().cpu() - exact).abs().max() / exact.abs().max()
        assert error.item() <= TOLERANCES[precision]
