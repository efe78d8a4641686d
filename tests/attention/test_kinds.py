"""Properties that every kind of attention must have in every place; no kind is special."""

from functools import partial

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from fairseq_mhe.attention import KINDS, build_attention
from fairseq_mhe.attention.masks import CausalMask, as_additive
from tests.attention.conftest import EMBED_DIM, HEADS, fast, make_layer, random, right_padding

# Both sides compute in float64; only the order of additions differs.
EXACT = {"rtol": 0, "atol": 1e-12}
B, T, S = 3, 5, 7
#: Places, and the form of the causal mask that fairseq or a user passes there.
MASKS = [
    ("cross", "none"),
    *(("decoder", mask) for mask in ("none", "causal", "boolean", "uint8", "float")),
]
random_search = given(
    data=st.data(),
    kind=st.sampled_from(sorted(KINDS)),
    form=st.sampled_from([lambda layer, _: layer, fast, partial(fast, shared_query=True)]),
    beam=st.integers(1, 4),
    sentences=st.integers(1, 3),
)


def inputs(place: str) -> tuple[Tensor, Tensor]:
    """Return X (T, B, C) and Y, which is X in self-attention and (S, B, C) in cross-attention."""
    x = random(T, B, EMBED_DIM)
    return x, random(S, B, EMBED_DIM, seed=1) if place == "cross" else x


def equation(layer, x: Tensor, y: Tensor, padding: Tensor | None = None, causal=False):
    """Return output (T, B, C) and weights (H, B, T, S) of the paper's equation."""
    mask = torch.zeros(x.size(1), x.size(0), y.size(0), dtype=torch.bool)
    if padding is not None:
        mask |= padding[:, None, :]
    if causal:
        mask |= torch.ones(x.size(0), y.size(0), dtype=torch.bool).triu(1)
    return layer.equation(x, y, mask)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("place", "mask_kind"), MASKS)
@pytest.mark.parametrize("bias", [False, True])
def test_equals_the_plain_equation(
    kind: str, form, place: str, padded: bool, mask_kind: str, bias: bool
) -> None:
    layer = make_layer(kind, bias=bias)
    x, y = inputs(place)
    padding = right_padding(B, y.size(0)) if padded else None
    mask = None if mask_kind == "none" else CausalMask(T)
    if mask_kind in ("boolean", "uint8"):
        mask = mask.hidden.to(torch.bool if mask_kind == "boolean" else torch.uint8)
    elif mask_kind == "float":
        mask = as_additive(mask, torch.float64)
    expected, expected_weights = equation(layer, x, y, padding, mask is not None)
    layer = form(layer, place)
    arguments = {"key_padding_mask": padding, "attn_mask": mask, "static_kv": place == "cross"}
    fused, none = layer(x, y, y, need_weights=False, **arguments)
    stepwise, weights = layer(x, y, y, need_head_weights=True, **arguments)
    _, mean_weights = layer(x, y, y, need_weights=True, **arguments)
    # The output of padded queries is undefined; fairseq's loss ignores it.
    real = slice(None) if padding is None or place == "cross" else ~padding.t()
    torch.testing.assert_close(fused[real], expected[real], **EXACT)
    torch.testing.assert_close(stepwise[real], expected[real], **EXACT)
    assert none is None
    by_query = expected_weights.permute(2, 1, 0, 3)[real]  # (H, B, T, S) -> (T, B, H, S)
    torch.testing.assert_close(weights.permute(2, 1, 0, 3)[real], by_query, **EXACT)
    torch.testing.assert_close(mean_weights.transpose(0, 1)[real], by_query.mean(-2), **EXACT)


def test_gradients_equal_the_plain_equations(kind: str, place: str) -> None:
    layer = make_layer(kind)
    x, y = inputs(place)
    padding = right_padding(B, y.size(0))
    leaves = [*layer.parameters(), x.requires_grad_(), y.requires_grad_()]
    real = slice(None) if place == "cross" else ~padding.t()  # padded queries are undefined
    loss = equation(layer, x, y, padding)[0][real].square().sum()
    expected = torch.autograd.grad(loss, leaves)
    out, _ = layer(x, y, y, key_padding_mask=padding, need_weights=False)
    gradients = torch.autograd.grad(out[real].square().sum(), leaves)
    # Gradients are sums of a few hundred products of numbers around 10.
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-10)


def test_every_parameter_gets_a_gradient(kind: str, place: str) -> None:
    """Data-parallel training stops at a parameter without a gradient; a gradient of 0 is enough."""
    layer = make_layer(kind, bias=True).train()
    x, y = inputs(place)
    layer(x, y, y)[0].sum().backward()
    assert [name for name, p in layer.named_parameters() if p.grad is None] == []


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
            given["key_padding_mask"] = padding[:, t : t + 1]
        with torch.no_grad():
            out, weights = layer(x[t : t + 1], **given)
        real = ~padding[:, t]
        torch.testing.assert_close(out[0][real], whole[t][real], **EXACT)
        if weights_too:
            expected = whole_weights[:, real, t, : t + 1]
            torch.testing.assert_close(weights[:, real, 0], expected, **EXACT)


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
        torch.testing.assert_close(out[0], recomputed[-1], **EXACT)


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
        torch.testing.assert_close(out[0], whole[0][-1], **EXACT)
        torch.testing.assert_close(weights[:, :, 0], whole[1][:, :, -1], **EXACT)
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
    torch.testing.assert_close(before[real], after[real], **EXACT)


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_future_does_not_matter(kind: str, form, need_weights: bool) -> None:
    layer = form(make_layer(kind), "decoder")
    x, given = random(T, B, EMBED_DIM), {"attn_mask": CausalMask(T), "need_weights": need_weights}
    before, _ = layer(x, **given)
    for t in range(T - 1):
        changed = x.clone()
        changed[t + 1 :] += 10
        after, _ = layer(changed, **given)
        torch.testing.assert_close(before[: t + 1], after[: t + 1], **EXACT)
        assert not torch.allclose(before[t + 1 :], after[t + 1 :])


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
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(layer.eval()(x, x, x)[0], undropped, **EXACT)
    assert not torch.allclose(undropped, expected)


OTHER_SIZES = [
    ("gqa", {"kv_heads": 4}),
    ("skv", {"kv_heads": 2}),
    ("mla", {"latent_dim": 5}),
    ("collaborative", {"collaborative_dim": 9}),
    ("tucker", {"tucker_head_rank": 3, "tucker_query_rank": 5, "tucker_key_rank": 7}),
    ("tpa", {"tpa_rank": 2}),
    ("mfa", {"query_rank": 7, "query_norm": "none"}),
]


@pytest.mark.parametrize(("kind", "options"), OTHER_SIZES)
def test_other_sizes_equal_the_plain_equation(kind: str, options: dict, form) -> None:
    """All at once in cross-attention, and step by step in the decoder."""
    layer = make_layer(kind, bias=True, **options)
    x, y = random(T, B, EMBED_DIM), random(S, B, EMBED_DIM, seed=1)
    expected = [equation(layer, x, y)[0], equation(layer, x, x, causal=True)[0]]
    out, _ = form(layer, "cross")(x, y, y, need_weights=False)
    decoder, state = form(layer, "decoder"), {}
    with torch.no_grad():
        steps = [decoder(step, incremental_state=state)[0] for step in x.split(1)]
    torch.testing.assert_close([out, torch.cat(steps)], expected, **EXACT)


@pytest.mark.parametrize("grad", [False, True])
def test_other_widths_equal_the_plain_equation(kind: str, form, grad: bool) -> None:
    """Cross-attention may read an encoder of another width, and heads may have any width."""
    if kind == "el":
        pytest.skip("EL-attention slices its input, which must be as wide as the heads together")
    layer = make_layer(kind, kdim=10, vdim=10, head_dim=5, bias=True)
    x, y = random(T, B, EMBED_DIM), random(S, B, 10)
    expected = equation(layer, x, y)[0]
    with torch.set_grad_enabled(grad):
        out, _ = form(layer, "cross")(x, y, y, need_weights=False)
    torch.testing.assert_close(out, expected, **EXACT)


def test_values_of_another_width_than_keys_are_read(kind: str, form) -> None:
    if KINDS[kind].keys_are_values:
        with pytest.raises(ValueError, match="kdim 10 and vdim 6 must be equal"):
            make_layer(kind, kdim=10, vdim=6)
        return
    layer = make_layer(kind, kdim=10, vdim=6)
    x, keys, values = random(T, B, EMBED_DIM), random(S, B, 10), random(S, B, 6)
    expected, _ = layer(x, keys, values, need_weights=True)
    out, _ = form(layer, "cross")(x, keys, values, need_weights=False)
    torch.testing.assert_close(out, expected, **EXACT)


def test_a_state_dict_restores_the_output(kind: str) -> None:
    layer, x = make_layer(kind, bias=True), random(T, B, EMBED_DIM)
    other = build_attention(kind, EMBED_DIM, HEADS, bias=True).double().eval()
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other(x)[0], layer(x)[0], rtol=0, atol=0)
