"""``mha`` against fairseq's attention with the same weights: outputs, weights and gradients."""

import pytest
import torch
from fairseq.modules import MultiheadAttention as FairseqAttention

from fairseq_mhe.attention import build_attention
from fairseq_mhe.attention.masks import CausalMask, as_additive
from tests.attention.conftest import EMBED_DIM, EXACT, HEADS, make_layer, random, right_padding

B, T, S = 3, 5, 7


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("place", "causal"),
    [("encoder", False), ("decoder", True), ("decoder", False), ("cross", False)],
)
def test_equals_fairseqs_forward_and_backward(place: str, padded: bool, causal: bool) -> None:
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
    out, weights = ours(x, y, y, padding, attn_mask=mask, need_weights=True)
    fused, _ = ours(x, y, y, padding, attn_mask=mask, need_weights=False)
    expected, expected_weights = theirs(x, y, y, padding, attn_mask=theirs_mask)
    torch.testing.assert_close(out[real], expected[real], **EXACT)
    torch.testing.assert_close(fused[real], expected[real], **EXACT)
    torch.testing.assert_close(weights, expected_weights, **EXACT)
    leaves = [x, y] if place == "cross" else [x]
    our_leaves = [*(ours.get_parameter(name) for name, _ in theirs.named_parameters()), *leaves]
    our_grads = torch.autograd.grad(fused[real].square().sum(), our_leaves)
    grads = torch.autograd.grad(expected[real].square().sum(), [*theirs.parameters(), *leaves])
    torch.testing.assert_close(our_grads, grads, rtol=1e-10, atol=1e-10)


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
