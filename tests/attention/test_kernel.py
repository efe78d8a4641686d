"""The kernel's fast paths against the plain equation, and which of torch's kernels it calls."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from fairseq_mhe.attention.kernel import CausalMask, Mask, as_additive, attend, masked_scores
from tests.attention.conftest import Operators, random, right_padding

# Float64 sums in another order.
EXACT = {"rtol": 0, "atol": 1e-12}


def attend_reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    key_padding_mask: Tensor | None = None,
    attn_mask: Mask | None = None,
) -> tuple[Tensor, Tensor]:
    """The plain equation H_i = softmax(Q_i K_i^T * scale) V_i, with a copy of each shared head.

    Arguments are those of ``attend``; returns heads (N, H, T, dv) and weights (N, H, T, S).
    """
    beam = query.size(0) // key.size(0)
    key, value = (
        x.repeat_interleave(beam, 0).repeat_interleave(query.size(1) // x.size(1), 1)
        for x in (key, value)
    )
    hidden = torch.zeros(len(key), key.size(2), dtype=torch.bool)  # (N, S)
    if key_padding_mask is not None:
        hidden = key_padding_mask.repeat_interleave(beam, 0)
    scores = torch.zeros(*query.shape[:3], key.size(2), dtype=query.dtype)
    parts = query.unbind(3) if query.dim() == 5 else [query]
    visible = key if len(parts) == 1 else key.masked_fill(hidden[:, None, :, None], 0.0)
    for j, part in enumerate(parts):  # part j meets the key j positions before
        product = part @ visible.transpose(-2, -1) * scale
        scores[..., j:] += product[..., : key.size(2) - j]
    if attn_mask is not None:
        scores = scores + as_additive(attn_mask, scores.dtype)
    weights = scores.masked_fill(hidden[:, None, None, :], float("-inf")).softmax(dim=-1)
    return weights @ value, weights


@settings(max_examples=60)
@given(
    sentences=st.integers(1, 3),
    beam=st.integers(1, 3),
    kv_heads=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    lengths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    widths=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    taps=st.integers(1, 3),
    padded=st.booleans(),
    masking=st.sampled_from(["none", "boolean", "float"]),
    contiguous=st.booleans(),
)
def test_equals_the_reference(
    sentences, beam, kv_heads, lengths, widths, taps, padded, masking, contiguous
) -> None:
    (key_heads, value_heads), (queries, keys), (dk, dv) = kv_heads, lengths, widths
    q = random(queries, sentences * beam, 4, taps * dk).permute(1, 2, 0, 3)  # as split_heads
    q = q.contiguous() if contiguous else q
    q = q.unflatten(3, (taps, dk)) if taps > 1 else q
    k = random(sentences, key_heads, keys, dk, seed=1)
    v = random(sentences, value_heads, keys, dv, seed=2)
    padding = right_padding(sentences, keys) if padded else None
    if padding is not None:
        padding[:, 0] = False  # every query sees a key
    mask = None
    if masking != "none":
        mask = random(queries, keys, seed=3) > 0.5
        mask[:, 0] = False
        mask = as_additive(mask, torch.float64) if masking == "float" else mask
    arguments = {"scale": 0.7, "key_padding_mask": padding, "attn_mask": mask}
    expected, expected_weights = attend_reference(q, k, v, **arguments)
    torch.testing.assert_close(attend(q, k, v, **arguments)[0], expected, **EXACT)
    plain, weights, sums = attend(q, k, v, need_weights=True, need_row_sums=True, **arguments)
    assert as_additive(q, q.dtype) is q, "numbers to add to the scores, not only 0 and -inf"
    torch.testing.assert_close(plain, expected, **EXACT)
    torch.testing.assert_close(weights, expected_weights, **EXACT)
    torch.testing.assert_close(sums, torch.ones_like(sums), **EXACT)


RIGHT, MIDDLE = right_padding(3, 6), torch.arange(6).expand(3, 6) == 2


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("padding", [None, RIGHT, RIGHT.flip(1), MIDDLE])
def test_causal_attention_with_padding_anywhere(kv_heads: int, padding) -> None:
    k, v = (random(3, kv_heads, 6, 5, seed=seed) for seed in (1, 2))
    q = random(3, 4, 6, 5)
    arguments = {"scale": 0.5, "key_padding_mask": padding, "attn_mask": CausalMask(6)}
    expected, _ = attend_reference(q, k, v, **arguments)
    heads, _, _ = attend(q, k, v, **arguments)
    real = torch.ones(3, 6, dtype=torch.bool) if padding is None else ~padding
    torch.testing.assert_close(heads.transpose(1, 2)[real], expected.transpose(1, 2)[real], **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_heads", [(1, 1), (2, 2), (4, 4), (1, 4)])
@pytest.mark.parametrize("width", [5, 8])
def test_paths_for_gpus_equal_the_reference(
    dtype: torch.dtype, kv_heads: tuple[int, int], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared masks, padded values, expanded keys and grouped heads, all computed on the CPU."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    q = random(6, 4, 7, width, dtype=dtype)
    k = random(3, kv_heads[0], 7, width, dtype=dtype, seed=1)
    v = random(3, kv_heads[1], 7, 5, dtype=dtype, seed=2)
    causal, tolerance = CausalMask(7), 1e-6 if dtype == torch.float32 else 0.03
    in_between = right_padding(3, 7)
    in_between[0, 1:3] = True
    for mask in (None, causal, causal.hidden, as_additive(causal, dtype)):
        for padding in (None, right_padding(3, 7), in_between):
            # A causal mask never meets a beam: hypotheses share keys only in steps without a mask.
            queries = q[::2] if isinstance(mask, CausalMask) else q
            given = {"scale": 0.5, "key_padding_mask": padding, "attn_mask": mask}
            with torch.inference_mode():
                attend(queries, k, v, **given)  # leaves nothing that autograd refuses
            first, *_ = attend(queries.requires_grad_(), k, v, **given)
            second, *_ = attend(queries, k, v, **given)
            arguments = (x.double() for x in (queries, k, v))
            expected, _ = attend_reference(*arguments, **given)
            real = torch.ones(3, 7, dtype=torch.bool)
            if isinstance(mask, CausalMask) and padding is not None:
                real = ~padding
            real = real.repeat_interleave(len(first) // 3, dim=0)
            first, second, expected = (x.transpose(1, 2)[real] for x in (first, second, expected))
            torch.testing.assert_close(first.double(), expected, rtol=0, atol=tolerance)
            torch.testing.assert_close(first, second, rtol=0, atol=0)


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


def test_causal_mask_hides_padding_only_on_the_right() -> None:
    mask, right = CausalMask(5), right_padding(3, 5)
    one_on_the_left = torch.arange(5).expand(3, 5) < torch.tensor([[0], [1], [0]])
    in_between = one_on_the_left.roll(2, dims=1)
    for padding in (right, right.flip(1), one_on_the_left, in_between, right):
        assert mask.hides_padding(padding) is (padding is right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keys", [9, 16])
def test_the_plain_softmax_is_computed_in_float32(keys: int, dtype: torch.dtype) -> None:
    """The result is rounded once, from float32.

    The CPU's softmax of half precision is as exact in torch 2.13, but other devices' may not be, so
    the dtype of the operator is checked too.
    """
    q = 4 * random(2, 4, 9, 8, dtype=dtype)
    k, v = (4 * random(2, 4, keys, 8, dtype=dtype, seed=seed) for seed in (1, 2))
    with Operators() as operators:
        _, weights, _ = attend(q, k, v, scale=0.5, need_weights=True)
    assert {out.dtype for name, out in operators.calls if "softmax" in name} == {torch.float32}
    scores = masked_scores(q, k, 0.5, None, None)
    assert scores.dtype == weights.dtype == dtype
    # Half a unit in the last place, and a few units of float32.
    rounded = {"rtol": 0.505 * torch.finfo(dtype).eps, "atol": 2**-25}
    torch.testing.assert_close(weights.double(), scores.double().softmax(dim=-1), **rounded)


@pytest.mark.parametrize(
    ("dtype", "keys", "training", "fused"),
    [
        (torch.bfloat16, 20, True, False),
        (torch.bfloat16, 20, False, True),
        (torch.bfloat16, 512, True, True),
        (torch.float32, 20, True, True),
    ],
)
def test_short_bfloat16_trains_without_the_cpus_fused_kernel(
    dtype: torch.dtype, keys: int, training: bool, fused: bool
) -> None:
    """Its backward pass takes many times as long as separate steps."""
    q = random(2, 4, 5, 8, dtype=dtype).requires_grad_()
    k = random(2, 4, keys, 8, dtype=dtype)
    with torch.set_grad_enabled(training), Operators() as operators:
        attend(q, k, k, scale=0.3)
    assert any("scaled_dot_product" in name for name, _ in operators.calls) == fused
