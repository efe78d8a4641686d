"""Properties that every kind of attention must have in every place; no kind is special."""

from functools import partial

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.testing import assert_close

from fairseq_mhe.attention import KINDS, Attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import (
    EMBED_DIM,
    EXACT,
    HEADS,
    equation,
    fast,
    make_layer,
    random,
    right_padding,
)

B, T, S = 3, 5, 7
#: Our kinds that may read an encoder of another width, and have heads of any width.
ANY_WIDTH = [
    name
    for name, kind in KINDS.items()
    if name != "el" and kind.__module__.startswith("fairseq_mhe.")
]
#: Kinds with options and sizes other than the defaults.
VARIANTS = [
    ("gqa", {"kv_heads": 4}),
    ("skv", {"kv_heads": 2}),
    ("mla", {"latent_dim": 5}),
    ("collaborative", {"collaborative_dim": 9}),
    ("tucker", {"tucker_head_rank": 3, "tucker_query_rank": 5, "tucker_key_rank": 7}),
    ("tpa", {"tpa_rank": 2}),
    ("mfa", {"query_rank": 7, "query_norm": "none"}),
    ("mhe_mul", {"head_embedding_offset": 0.5}),
    *((kind, {"kdim": 10, "vdim": 10, "head_dim": 5}) for kind in ANY_WIDTH),
]
random_search = given(
    data=st.data(),
    kind=st.sampled_from(sorted(KINDS)),
    form=st.sampled_from([lambda layer, _: layer, fast, partial(fast, shared_query=True)]),
    beam=st.integers(1, 4),
    sentences=st.integers(1, 3),
)


def inputs(place: str, memory: int = EMBED_DIM) -> tuple[Tensor, Tensor]:
    """Return X (T, B, C) and Y, which is X in self-attention and (S, B, M) in cross-attention."""
    x = random(T, B, EMBED_DIM)
    return x, random(S, B, memory, seed=1) if place == "cross" else x


def check(layer: Attention, form, place: str, padding: Tensor | None, mask) -> None:
    """Compare output and weights, by fused kernels and step by step, with the equation."""
    x, y = inputs(place, layer.kdim)
    expected, expected_weights = equation(layer, x, y, padding, mask is not None)
    layer = form(layer, place)
    given = {"key_padding_mask": padding, "attn_mask": mask, "static_kv": place == "cross"}
    fused, none = layer(x, y, y, need_weights=False, **given)
    stepwise, weights = layer(x, y, y, need_head_weights=True, **given)
    _, mean_weights = layer(x, y, y, need_weights=True, **given)
    # The output of padded queries is undefined; fairseq's loss ignores it.
    real = slice(None) if padding is None or place == "cross" else ~padding.t()
    assert none is None
    assert_close(fused[real], expected[real], **EXACT)
    assert_close(stepwise[real], expected[real], **EXACT)
    by_query = expected_weights.permute(2, 1, 0, 3)[real]  # (H, B, T, S) -> (T, B, H, S)
    assert_close(weights.permute(2, 1, 0, 3)[real], by_query, **EXACT)
    assert_close(mean_weights.transpose(0, 1)[real], by_query.mean(-2), **EXACT)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("place", "causal"), [("cross", False), ("decoder", False), ("decoder", True)]
)
def test_equals_the_plain_equation(kind: str, form, place: str, causal: bool, padded: bool) -> None:
    """test_fused.py has other forms of masks, which no kind looks at."""
    mask = CausalMask(T) if causal else None
    padding = right_padding(B, S if place == "cross" else T) if padded else None
    for bias in (False, True):
        check(make_layer(kind, bias=bias), form, place, padding, mask)


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=str)
def test_other_sizes_equal_the_plain_equation(kind: str, options: dict, form) -> None:
    """All at once in cross-attention, and step by step in the decoder."""
    layer = make_layer(kind, bias=True, **options)
    check(layer, form, "cross", right_padding(B, S), None)
    if layer.kdim == EMBED_DIM:
        x, state, decoder = random(T, B, EMBED_DIM), {}, form(layer, "decoder")
        steps = [decoder(step, incremental_state=state)[0] for step in x.split(1)]
        assert_close(torch.cat(steps), equation(layer, x, x, causal=True)[0], **EXACT)


def test_gradients_equal_the_plain_equations(kind: str, place: str) -> None:
    """Every parameter has one: data-parallel training stops at a parameter without."""
    layer = make_layer(kind, bias=True)
    x, y = inputs(place)
    padding = right_padding(B, y.size(0))
    leaves = [*layer.parameters(), x.requires_grad_(), y.requires_grad_()]
    real = slice(None) if place == "cross" else ~padding.t()  # padded queries are undefined
    loss = equation(layer, x, y, padding)[0][real].square().sum()
    expected = torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)
    out, _ = layer(x, y, y, key_padding_mask=padding, need_weights=False)
    gradients = torch.autograd.grad(out[real].square().sum(), leaves)
    # Gradients are sums of a few hundred products of numbers around 10.
    assert_close(gradients, expected, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("weights_too", [False, True])
def test_decoding_step_by_step_equals_all_at_once(
    kind: str, form, padded: bool, weights_too: bool
) -> None:
    layer = make_layer(kind, bias=weights_too)
    x, mask = random(T, B, EMBED_DIM), CausalMask(T)
    padding = torch.zeros(B, T, dtype=torch.bool)
    given: dict = {"need_head_weights": True}
    if padded:
        padding = right_padding(B, T).flip(1)  # on the left, as fairseq allows
        padding[:, -1] = False
        mask, given["key_padding_mask"] = mask.hidden, padding
    whole, whole_weights = layer(x, attn_mask=mask, **given)
    layer = form(layer, "decoder")
    given |= {"incremental_state": {}, "need_weights": weights_too}
    given["need_head_weights"] = weights_too
    for t in range(T):
        if padded:
            now = padding[:, t : t + 1]
            given["key_padding_mask"] = now if now.any() else None  # only where there is some
        with torch.no_grad():
            out, weights = layer(x[t : t + 1], **given)
        real = ~padding[:, t]
        assert_close(out[0][real], whole[t][real], **EXACT)
        if weights_too:
            expected = whole_weights[:, real, t, : t + 1]
            assert_close(weights[:, real, 0], expected, **EXACT)


@settings(max_examples=25)
@random_search
def test_any_beam_reordering_equals_recomputing(
    data: st.DataObject, kind: str, form, beam: int, sentences: int
) -> None:
    """In self-attention the cache follows hypotheses that are copied and dropped."""
    plain = make_layer(kind, bias=True)
    layer = form(plain, "decoder")
    history = random(1, sentences * beam, EMBED_DIM)  # (t, N, C), all inputs of each hypothesis
    state: dict = {}
    layer(history[-1:], incremental_state=state)
    for step in range(data.draw(st.integers(1, 4))):
        order = torch.tensor(data.draw(beam_orders(history.size(1), beam)))
        layer.reorder_incremental_state(state, order)
        new = random(1, len(order), EMBED_DIM, seed=step + 1)
        history = torch.cat((history[:, order], new))
        out, _ = layer(new, incremental_state=state, need_weights=False)
        recomputed, _ = plain(history, attn_mask=CausalMask(len(history)), need_weights=False)
        assert_close(out[0], recomputed[-1], **EXACT)


@settings(max_examples=25)
@random_search
def test_cross_attention_shares_the_row_of_a_sentence(
    data: st.DataObject, kind: str, form, beam: int, sentences: int
) -> None:
    """One row of keys for a sentence equals one row for each hypothesis, after any reordering."""
    plain = make_layer(kind, bias=True)
    layer = form(plain, "cross")
    memory, padding = random(S, sentences, EMBED_DIM, seed=1), right_padding(sentences, S)
    owner = torch.arange(sentences).repeat_interleave(beam)  # the sentence of each hypothesis
    state: dict = {}
    history = random(0, len(owner), EMBED_DIM)
    for step in range(data.draw(st.integers(1, 4))):
        x = random(1, len(owner), EMBED_DIM, seed=step)
        history = torch.cat((history, x))  # (t, N, C), all inputs of each hypothesis
        given = {"static_kv": True, "need_head_weights": True}
        cached = {"incremental_state": state, "key_padding_mask": None if step else padding}
        out, weights = layer(x, memory, **cached, **given)
        whole = plain(history, memory[:, owner], key_padding_mask=padding[owner], **given)
        assert_close(out[0], whole[0][-1], **EXACT)
        assert_close(weights[:, :, 0], whole[1][:, :, -1], **EXACT)
        order = torch.tensor(data.draw(beam_orders(len(owner), beam)))
        layer.reorder_incremental_state(state, order)
        owner, history = owner[order], history[:, order]


@st.composite
def beam_orders(draw: st.DrawFn, hypotheses: int, beam: int) -> list[int]:
    """Draw an order of beam search (some sentences continue, none mix), or an arbitrary order."""
    if draw(st.booleans()):
        return draw(st.lists(st.integers(0, hypotheses - 1), min_size=1, max_size=hypotheses))
    if hypotheses < beam:
        return [0]
    sentences = st.sets(st.sampled_from(range(hypotheses // beam)), min_size=1)
    continued = [sentence for sentence in sorted(draw(sentences)) for _ in range(beam)]
    return [sentence * beam + draw(st.integers(0, beam - 1)) for sentence in continued]


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_does_not_matter(kind: str, form, place: str, side: str) -> None:
    """Other numbers at padded positions do not change the output of real queries."""
    layer = form(make_layer(kind), place)
    x, y = inputs(place)
    padding = right_padding(B, y.size(0))
    padding = padding if side == "right" else padding.flip(1)
    other = y + 100 * random(*y.shape, seed=5) * padding.t().unsqueeze(-1)
    causal = CausalMask(T) if place == "decoder" else None
    arguments = {"key_padding_mask": padding, "attn_mask": causal, "need_weights": False}
    before, after = (layer(x if place == "cross" else z, z, z, **arguments)[0] for z in (y, other))
    real = slice(None) if place == "cross" else ~padding.t()
    assert_close(before[real], after[real], **EXACT)


def test_dropout_of_attention_weights_is_the_papers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropped weights W' the output is concat_i(W'_i V_i) W_O, V_i as in the paper."""
    layer = make_layer(kind, dropout=0.25).train()  # not F.dropout's default of 0.5
    x = random(T, B, EMBED_DIM)
    undropped, weights = equation(layer, x, x)
    heads = 1 if kind == "sha" else HEADS  # sha repeats its head, with its dropped weights
    by_sentence = weights[:heads].transpose(0, 1).contiguous()  # (B, H or 1, T, S), as in the layer
    torch.manual_seed(3)
    dropped = torch.nn.functional.dropout(by_sentence, 0.25)
    torch.manual_seed(3)
    out, _ = layer(x, x, x, need_weights=False)
    # The equation runs again, with the dropped weights in place of its softmax of each head.
    replay = iter(dropped.transpose(0, 1).expand(HEADS, -1, -1, -1))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "softmax", lambda scores, dim: next(replay))
        expected, _ = equation(layer, x, x)
    assert_close(out, expected, **EXACT)
    assert_close(layer.eval()(x, x, x)[0], undropped, **EXACT)
    assert not torch.allclose(undropped, expected)
