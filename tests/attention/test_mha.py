"""``mha`` against fairseq's attention with the same weights: outputs, weights and gradients."""

import pytest
import torch
from fairseq.modules import MultiheadAttention as FairseqAttention

from fairseq_mhe.attention import build_attention
from fairseq_mhe.attention.masks import CausalMask, as_additive
from tests.attention.conftest import EMBED_DIM, HEADS, make_layer, random, right_padding

EXACT = {"rtol": 0, "atol": 1e-12}
# With static_kv fairseq computes its softmax in float32 (24 bits) for any input; values and
# gradients reach 100.
FLOAT32_SOFTMAX = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
B, T, S = 3, 5, 7


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("place", "causal"),
    [("encoder", False), ("decoder", True), ("decoder", False), ("cross", False)],
)
@pytest.mark.parametrize("static_kv", [False, True])
def test_equals_fairseqs_forward_and_backward(
    place: str, padded: bool, causal: bool, static_kv: bool
) -> None:
    ours = make_layer("mha", bias=True)
    role = "encoder_decoder_attention" if place == "cross" else "self_attention"
    theirs = FairseqAttention(EMBED_DIM, HEADS, **{role: True}).double().eval()
    theirs.load_state_dict(ours.state_dict())
    x = random(T, B, EMBED_DIM).requires_grad_()
    y = random(S, B, EMBED_DIM, seed=1).requires_grad_() if place == "cross" else x
    padding = right_padding(B, y.size(0)) if padded else None
    mask = CausalMask(T) if causal else None
    theirs_mask = as_additive(mask, torch.float64) if mask else None
    real = ~padding.t() if padded and place != "cross" else torch.ones(T, B, dtype=torch.bool)

    given = {"key_padding_mask": padding, "static_kv": static_kv}
    out, weights = ours(x, y, y, attn_mask=mask, need_weights=True, **given)
    fused, _ = ours(x, y, y, attn_mask=mask, need_weights=False, **given)
    expected, expected_weights = theirs(x, y, y, attn_mask=theirs_mask, **given)
    tolerance = FLOAT32_SOFTMAX if static_kv else EXACT
    torch.testing.assert_close(out[real], expected[real], **tolerance)
    torch.testing.assert_close(fused[real], expected[real], **tolerance)
    torch.testing.assert_close(weights, expected_weights, **tolerance)

    # The terms of a gradient reach 100, and nearly cancel in the key's bias.
    tolerance = {"rtol": 1e-4, "atol": 5e-4} if static_kv else {"rtol": 1e-10, "atol": 1e-10}
    leaves = [x, y] if place == "cross" else [x]
    our_leaves = [*(ours.get_parameter(name) for name, _ in theirs.named_parameters()), *leaves]
    our_grads = torch.autograd.grad(fused[real].square().sum(), our_leaves)
    grads = torch.autograd.grad(expected[real].square().sum(), [*theirs.parameters(), *leaves])
    torch.testing.assert_close(our_grads, grads, **tolerance)


@pytest.mark.parametrize("memory", [256, 128])
def test_is_initialised_as_fairseqs(memory: int) -> None:
    """fairseq's projections start smaller if all three have inputs of the same width."""
    torch.manual_seed(1)
    role = {"self_attention": memory == 256, "encoder_decoder_attention": memory != 256}
    sizes = {"kdim": memory, "vdim": memory}
    ours = build_attention("mha", 256, 4, bias=True, **sizes)
    theirs = FairseqAttention(256, 4, **role, **sizes)
    for name, parameter in theirs.named_parameters():
        other = ours.get_parameter(name)
        # Both are uniform: 256 or more draws come near the ends and the deviation of the interval.
        largest, spread = parameter.abs().max().item(), parameter.std().item()
        assert other.abs().max().item() == pytest.approx(largest, rel=0.02), name
        assert other.std().item() == pytest.approx(spread, rel=0.1), name
