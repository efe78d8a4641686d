"""The fused calls against the readable reference, on the CPU and on paths for GPUs."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.testing import assert_close

from fairseq_mhe.attention.fused import attend, scores_of, softmax
from fairseq_mhe.attention.masks import CausalMask, as_additive
from fairseq_mhe.attention.reference import attend_reference
from tests.attention.conftest import EXACT, Operators, random, right_padding


@settings(max_examples=60)
@given(
    sentences=st.integers(1, 3),
    beam=st.integers(1, 3),
    kv_heads=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    lengths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    widths=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    padded=st.booleans(),
    masking=st.sampled_from(["none", "boolean", "float"]),
    contiguous=st.booleans(),
)
def test_equals_the_reference(
    sentences, beam, kv_heads, lengths, widths, padded, masking, contiguous
) -> None:
    (key_heads, value_heads), (queries, keys), (dk, dv) = kv_heads, lengths, widths
    q = random(queries, sentences * beam, 4, dk).permute(1, 2, 0, 3)  # as split_heads
    q = q.contiguous() if contiguous else q
    k = random(sentences, key_heads, keys, dk, seed=1)
    v = random(sentences, value_heads, keys, dv, seed=2)
    padding = right_padding(sentences, keys) if padded else None
    if padding is not None:
        padding[:, 0] = False  # every query sees a key
    mask = None
    if masking != "none":
        mask = random(queries, keys, seed=3) > 0.5
        mask[:, 0] = False
    if masking == "float":  # numbers to add to the scores, not only 0 and -inf
        mask = as_additive(mask, torch.float64) + random(queries, keys, seed=4)
    masks = {"key_padding_mask": padding, "attn_mask": mask}
    expected = attend_reference(q, k, v, scale=0.7, **masks)
    fast = attend(q, k, v, scale=0.7, **masks)
    assert_close(fast.heads, expected[0], **EXACT)
    assert fast.weights is None
    assert_close(tuple(attend(q, k, v, scale=0.7, need_weights=True, **masks)), expected, **EXACT)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [(1, 1), (2, 2), (4, 4), (1, 4)])
@pytest.mark.parametrize("width", [5, 8])
def test_every_mask_and_padding_anywhere(
    gpu: bool,
    dtype: torch.dtype,
    kv_heads: tuple[int, int],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paths for GPUs, with padded values and grouped heads, are computed on the CPU."""
    if gpu:
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    q = random(6, 4, 7, width, dtype=dtype)
    k = random(3, kv_heads[0], 7, width, dtype=dtype, seed=1)
    v = random(3, kv_heads[1], 7, 5, dtype=dtype, seed=2)
    causal, tolerance = CausalMask(7), 1e-5 if dtype == torch.float32 else 0.03
    right = right_padding(3, 7)
    hidden = causal.hidden
    for mask in (None, causal, hidden, hidden.to(torch.uint8), as_additive(causal, dtype)):
        for padding in (None, right, right.flip(1), torch.arange(7).expand(3, 7) == 2):
            # A causal mask never meets a beam: hypotheses share keys only in steps without a mask.
            queries = q if mask is None else q[::2]
            given = {"scale": 0.5, "key_padding_mask": padding, "attn_mask": mask}
            heads = attend(queries.requires_grad_(), k, v, **given).heads
            assert attend(queries, k, v, need_weights=True, **given).weights is not None
            expected = attend_reference(*(x.double() for x in (queries, k, v)), **given)[0]
            real = torch.ones(3, 7, dtype=torch.bool)
            if mask is not None and padding is not None:
                real = ~padding
            real = real.repeat_interleave(len(heads) // 3, dim=0)
            heads, expected = (x.transpose(1, 2)[real] for x in (heads, expected))
            assert_close(heads.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("wanted", [False, True])
def test_only_a_variable_enables_cudnn(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    enabled = []

    def attention(query: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        enabled.append(torch.backends.cuda.cudnn_sdp_enabled())
        return query

    monkeypatch.setenv("FAIRSEQ_MHE_CUDNN", "1" if wanted else "")
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    q = random(3, 4, 6, 5)
    attend(q, q, q, scale=0.5)
    assert (enabled, torch.backends.cuda.cudnn_sdp_enabled()) == ([wanted], True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keys", [9, 16])
def test_the_plain_softmax_is_computed_in_float32(keys: int, dtype: torch.dtype) -> None:
    """The CPU's softmax of half precision is as exact in torch 2.13, but others' may not be."""
    scores = scores_of(
        4 * random(2, 4, 9, 8, dtype=dtype), 4 * random(2, 4, keys, 8, dtype=dtype), 0.5
    )
    with Operators() as operators:
        weights = softmax(scores)
    assert {out.dtype for name, out in operators.calls if "softmax" in name} == {torch.float32}
    assert scores.dtype == weights.dtype == dtype
    # Half a unit in the last place, and a few units of float32.
    rounded = {"rtol": 0.505 * torch.finfo(dtype).eps, "atol": 2**-25}
    assert_close(weights.double(), scores.double().softmax(dim=-1), **rounded)
