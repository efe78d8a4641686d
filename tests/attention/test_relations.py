"""With the right weights one kind computes exactly the same as another, for all shapes."""

from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.masks import CausalMask
from tests.attention.conftest import PLACES, make_layer, random, right_padding

# Float64 sums in another order.
EXACT = {"rtol": 0, "atol": 1e-12}


def copy_shared(layer: Attention, source: Attention) -> None:
    """Copy into ``layer`` those weights of ``source`` that have the same name and shape in both."""
    theirs = dict(source.named_parameters())
    for name, parameter in layer.named_parameters():
        if name in theirs and theirs[name].shape == parameter.shape:
            parameter.copy_(theirs[name])


def collaborative_as_mha(mha: Attention, sizes: dict) -> Attention:
    """D = n d: MHA's queries and keys of all heads side by side; head i mixes only its own block.

    Of the terms with MHA's biases softmax ignores all but b_Q^i (Y W_K^i)^T, the content term.
    """
    width = mha.num_heads * mha.head_dim
    layer = make_layer("collaborative", **sizes, collaborative_dim=width)
    copy_shared(layer, mha)
    layer.mixing.copy_(torch.eye(mha.num_heads).repeat_interleave(mha.head_dim, dim=1))
    if layer.content_proj is not None:
        keys = mha.k_proj.weight.unflatten(0, (mha.num_heads, -1))  # (H, d, C)
        biases = mha.q_proj.bias.unflatten(0, (mha.num_heads, -1))
        layer.content_proj.weight.copy_(torch.einsum("hdc,hd->hc", keys, biases) * mha.scaling)
    return layer


def mhe_without_embeddings(kind: str, sha: Attention, sizes: dict) -> Attention:
    layer = make_layer(kind, **sizes)
    copy_shared(layer, sha)
    for name in ("query_embedding", "key_embedding", "value_embedding"):
        layer.get_parameter(name).zero_()
    return layer


def gqa_of_as_many(other: Attention, sizes: dict) -> Attention:
    """g is the number of the other kind's key heads."""
    layer = make_layer("gqa", **sizes, kv_heads=other.kv_heads)
    layer.load_state_dict(other.state_dict())
    return layer


def mha_from_skv(skv: Attention, sizes: dict) -> Attention:
    """Both projections are copies of the shared one."""
    layer = make_layer("mha", **sizes)
    copy_shared(layer, skv)
    layer.k_proj.load_state_dict(skv.kv_proj.state_dict())
    layer.v_proj.load_state_dict(skv.kv_proj.state_dict())
    return layer


def skv_from_el(el: Attention, sizes: dict) -> Attention:
    """The identity as projection returns the input itself."""
    layer = make_layer("skv", **sizes)
    copy_shared(layer, el)
    layer.kv_proj.weight.copy_(torch.eye(el.embed_dim))
    if layer.kv_proj.bias is not None:
        layer.kv_proj.bias.zero_()
    return layer


def mla_of_everything(mha: Attention, sizes: dict) -> Attention:
    """r = C and W_D is the identity: the input itself is the latent vector.

    Attention weights sum to 1, so the output's bias can contain the bias of MHA's values.
    """
    layer = make_layer("mla", **sizes, latent_dim=mha.embed_dim)
    copy_shared(layer, mha)
    layer.down_proj.weight.copy_(torch.eye(mha.embed_dim))
    layer.k_up_proj.weight.copy_(mha.k_proj.weight)
    layer.v_up_proj.weight.copy_(mha.v_proj.weight)
    if mha.bias:
        layer.down_proj.bias.zero_()
        layer.out_proj.bias.add_(mha.out_proj.weight @ mha.v_proj.bias)
    return layer


def conv_without_neighbours(mul: Attention, sizes: dict) -> Attention:
    """e_i1 = e_i2 = 0, so scores ignore the keys before; W_O contains the value's factors."""
    layer = make_layer("mhe_conv", **sizes)
    copy_shared(layer, mul)
    layer.out_proj.weight.mul_(1 + mul.value_embedding.flatten())
    layer.taps.zero_()
    layer.taps[:, 0] = (1 + mul.query_embedding) * (1 + mul.key_embedding)
    return layer


def conv_of_one_key(kind: str, original: Attention, sizes: dict) -> Attention:
    layer = make_layer(kind, **sizes)
    copy_shared(layer, original)
    layer.taps.copy_(torch.tensor([1, 0, 0]).unsqueeze(1))  # (n, 3, d)
    return layer


def mla_of_key_and_value(mqa: Attention, sizes: dict) -> Attention:
    """r = 2 d, the default: the latent vector is MQA's key and value side by side."""
    layer = make_layer("mla", **sizes)
    copy_shared(layer, mqa)
    for name, parameter in layer.down_proj.named_parameters():
        sides = [side.get_parameter(name) for side in (mqa.k_proj, mqa.v_proj)]
        parameter.copy_(torch.cat(sides))
    key, value = torch.eye(2 * mqa.head_dim).chunk(2)  # (d, 2 d) each
    layer.k_up_proj.weight.copy_(key.repeat(mqa.num_heads, 1))
    layer.v_up_proj.weight.copy_(value.repeat(mqa.num_heads, 1))
    return layer


def mqa_from_skv(skv: Attention, sizes: dict) -> Attention:
    """The only group's projection is key and value projection of MQA."""
    layer = make_layer("mqa", **sizes)
    copy_shared(layer, skv)
    layer.k_proj.load_state_dict(skv.kv_proj.state_dict())
    layer.v_proj.load_state_dict(skv.kv_proj.state_dict())
    return layer


def tucker_with_diagonal_scores(mul: Attention, sizes: dict) -> Attention:
    """a = n, b = d and c = n d: C_i is diagonal; D_i scales head i and selects its rows of W_O."""
    n, d = mul.num_heads, mul.head_dim
    ranks = {"tucker_head_rank": n, "tucker_query_rank": d, "tucker_key_rank": n * d}
    layer = make_layer("tucker", **sizes, **ranks)
    copy_shared(layer, mul)  # queries, values and W_O
    for name, parameter in layer.k_proj.named_parameters():
        parameter.zero_()[:d] = mul.k_proj.get_parameter(name)
    scores = (1 + mul.query_embedding) * (1 + mul.key_embedding)  # (n, d)
    outputs = 1 + mul.value_embedding
    layer.score_matrices.zero_()  # (n, d, n d)
    layer.output_matrices.zero_()
    for i in range(n):
        layer.score_matrices[i, :, :d] = scores[i].diag()
        layer.output_matrices[i, :, i * d : (i + 1) * d] = outputs[i].diag()
    layer.score_weights.copy_(torch.eye(n))
    layer.output_weights.copy_(torch.eye(n))
    return layer


def tucker_of_full_ranks(mha: Attention, sizes: dict) -> Attention:
    """a = n and b = c = n d: the matrices of head i select its block of MHA's projections."""
    n, d = mha.num_heads, mha.head_dim
    ranks = {"tucker_head_rank": n, "tucker_query_rank": n * d, "tucker_key_rank": n * d}
    layer = make_layer("tucker", **sizes, **ranks)
    copy_shared(layer, mha)
    blocks = torch.eye(n).repeat_interleave(d, dim=1).diag_embed()  # (n, n d, n d)
    for name in ("score", "output"):
        layer.get_parameter(f"{name}_matrices").copy_(blocks)
        layer.get_parameter(f"{name}_weights").copy_(torch.eye(n))
    return layer


def mfa_of_full_rank(mqa: Attention, sizes: dict) -> Attention:
    """r = C and A is the identity."""
    width = mqa.embed_dim
    layer = make_layer("mfa", **sizes, query_rank=width, query_norm="none")
    copy_shared(layer, mqa)
    layer.q_down_proj.weight.copy_(torch.eye(width))
    if mqa.bias:
        layer.q_down_proj.bias.zero_()
    return layer


def dconv_of_one_position(mha: Attention, sizes: dict) -> Attention:
    layer = make_layer("mha_dconv", **sizes)
    copy_shared(layer, mha)
    for taps in (layer.q_taps, layer.k_taps, layer.v_taps):
        taps.copy_(torch.tensor([1, 0, 0]).unsqueeze(1))  # (3, n d)
    return layer


#: Relation -> the second kind, a function that builds an equal layer of the first kind, and options
#: of the second kind.
RELATIONS: dict[str, tuple[Any, ...]] = {
    "collaborative with D = n d and block mixing is mha": ("mha", collaborative_as_mha),
    "mhe_mul with zero embeddings is sha": ("sha", partial(mhe_without_embeddings, "mhe_mul")),
    "mhe_add with zero embeddings is sha": ("sha", partial(mhe_without_embeddings, "mhe_add")),
    "gqa with g = n is mha": ("mha", gqa_of_as_many),
    "gqa with g = 1 is mqa": ("mqa", gqa_of_as_many),
    "mha with equal key and value projections is skv": ("skv", mha_from_skv),
    "skv with the identity as projection is el": ("el", skv_from_el),
    "mla with r = C and no compression is mha": ("mha", mla_of_everything),
    "mla with key and value side by side is mqa": ("mqa", mla_of_key_and_value),
    "mha_conv without neighbours is mha": ("mha", partial(conv_of_one_key, "mha_conv")),
    "mhe_conv without neighbours is mhe_mul": ("mhe_mul", conv_without_neighbours),
    "mqa_conv without neighbours is mqa": ("mqa", partial(conv_of_one_key, "mqa_conv")),
    "mha_dconv without neighbours is mha": ("mha", dconv_of_one_position),
    "mqa with equal key and value projections is skv with g = 1": (
        *("skv", mqa_from_skv),
        {"kv_heads": 1},
    ),
    "tucker with diagonal scores is mhe_mul": ("mhe_mul", tucker_with_diagonal_scores),
    "tucker with full ranks is mha": ("mha", tucker_of_full_ranks),
    "mfa with r = C and no norm is mqa": ("mqa", mfa_of_full_rank),
}


@pytest.mark.parametrize("relation", RELATIONS)
@settings(max_examples=25)
@given(
    place=st.sampled_from(PLACES),
    batch=st.integers(1, 3),
    queries=st.integers(1, 6),
    keys=st.integers(1, 6),
    heads=st.sampled_from([2, 4, 6]),
    head_dim=st.integers(1, 6),
    bias=st.booleans(),
    padded=st.booleans(),
    need_weights=st.booleans(),
)
@torch.no_grad()
def test_kinds_are_equal_with_the_right_weights(
    relation, place, batch, queries, keys, heads, head_dim, bias, padded, need_weights
) -> None:
    kind, convert, *options = RELATIONS[relation]
    sizes = {"embed_dim": heads * head_dim, "num_heads": heads, "bias": bias}
    original = make_layer(kind, **sizes, **dict(*options))
    converted = convert(original, sizes)
    x = random(queries, batch, heads * head_dim)
    y = random(keys, batch, heads * head_dim, seed=1) if place == "cross" else x
    padding = right_padding(batch, y.size(0)) if padded else None
    if padding is not None:
        padding[:, 0] = False  # a sentence of padding alone has no defined output
    mask = CausalMask(queries) if place == "decoder" else None
    arguments = {"key_padding_mask": padding, "attn_mask": mask, "need_head_weights": need_weights}
    expected, expected_weights = original(x, y, y, need_weights=need_weights, **arguments)
    out, weights = converted(x, y, y, need_weights=need_weights, **arguments)
    # The output of a padded query is undefined; fairseq's loss ignores it.
    undefined = padded and place != "cross"
    real = ~padding.t() if undefined else torch.ones(queries, batch, dtype=torch.bool)
    torch.testing.assert_close(out[real], expected[real], **EXACT)
    if need_weights:  # (H, B, T, S) -> (T, B, H, S)
        by_query = (w.permute(2, 1, 0, 3)[real] for w in (weights, expected_weights))
        torch.testing.assert_close(*by_query, **EXACT)
