"""Every kind, place and precision against float32 on the CPU; on a GPU if there is one."""

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import Attention, build_attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import HEADS, PLACES, fast, right_padding

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Greatest allowed difference, relative to the greatest number: fp16 has 11 bits, bf16 8.
TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
if DEVICE == "cpu":  # where fp16 takes the same code paths as bf16
    del TOLERANCES["float16"]
B, T, S, EMBED_DIM = 4, 33, 40, 256


def output_and_gradients(
    layer: Attention, x: Tensor, y: Tensor, place: str, plain: bool = False
) -> list[Tensor]:
    """Return the output (T, B, C), 0 at padding, and its gradients by input and weights.

    ``plain``: compute step by step, without a fused kernel, by asking for attention weights too.
    """
    x = x.detach().requires_grad_()
    memory = y if place == "cross" else x
    padding = right_padding(B, len(memory)).to(x.device)  # (B, S)
    mask = CausalMask(T, x.device) if place == "decoder" else None
    masks = {"key_padding_mask": padding, "attn_mask": mask}
    out, _ = layer(x, memory, memory, **masks, need_weights=plain)
    if place != "cross":
        out = out * ~padding.t().unsqueeze(-1)
    # A sum, since the gradients of a mean are too small for fp16 without a loss scale.
    loss = out.float().square().sum()
    by_input, *by_weights = torch.autograd.grad(loss, [x, *layer.parameters()])
    return [out.detach(), by_input, torch.cat([weight.flatten() for weight in by_weights])]


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("place", PLACES)
def test_output_and_gradients_equal_float32(kind: str, place: str, precision: str) -> None:
    dtype = getattr(torch, precision)
    layer = build_attention(kind, EMBED_DIM, HEADS)
    # Weights and inputs are rounded first, so that only the computation differs.
    layer.to(dtype).float()
    x, y = (torch.randn(length, B, EMBED_DIM).to(dtype).float() for length in (T, S))
    expected = output_and_gradients(layer, x, y, place, plain=True)
    layer.to(DEVICE, dtype)
    results = output_and_gradients(layer, x.to(DEVICE, dtype), y.to(DEVICE, dtype), place)
    for result, exact in zip(results, expected, strict=True):
        error = (result.float().cpu() - exact).abs().max() / exact.abs().max()
        assert float(error) <= TOLERANCES[precision]


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("place", ["decoder", "cross"])
def test_decoding_steps_equal_float32(kind: str, place: str, precision: str) -> None:
    dtype = getattr(torch, precision)
    layer = build_attention(kind, EMBED_DIM, HEADS, bias=True).to(dtype).float()
    x, y = (torch.randn(length, B, EMBED_DIM).to(dtype) for length in (T, S))
    decoder, padding = place == "decoder", right_padding(B, S)
    masks = {"attn_mask": CausalMask(T)} if decoder else {"key_padding_mask": padding}
    expected, _ = layer(x.float(), (x if decoder else y).float(), **masks)
    layer = fast(layer, place).to(DEVICE, dtype)
    arguments = {"incremental_state": {}, "static_kv": not decoder, "need_weights": False}
    if not decoder:
        arguments |= {"key": y.to(DEVICE), "key_padding_mask": padding.to(DEVICE)}
    with torch.no_grad():
        steps = [layer(step, **arguments)[0].float().cpu() for step in x.to(DEVICE).split(1)]
    error = (torch.cat(steps) - expected).abs().max() / expected.abs().max()
    assert float(error) <= TOLERANCES[precision]
