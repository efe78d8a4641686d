"""With the right weights one kind's equation is another's, up to ``mha``, which is fairseq's."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fairseq_mhe.attention import Attention
from tests.attention.conftest import EMBED_DIM, EXACT, HEADS, equation, make_layer, random


def like(kind: str, source: Attention, **options: Any) -> Attention:
    """Build a layer with those weights of ``source`` that have the same name and shape in both."""
    layer = make_layer(kind, bias=source.bias, **options)
    theirs = dict(source.named_parameters())
    for name, parameter in layer.named_parameters():
        if name in theirs and theirs[name].shape == parameter.shape:
            parameter.copy_(theirs[name])
    return layer


def sha_as_mqa(sha: Attention) -> Attention:
    """All heads have the same query."""
    layer = like("mqa", sha)
    for name, parameter in layer.q_proj.named_parameters():
        copies = [sha.q_proj.get_parameter(name)] * HEADS
        parameter.copy_(torch.cat(copies))
    return layer


def without_embeddings(kind: str, sha: Attention) -> Attention:
    layer = like(kind, sha)
    for name in ("query_embedding", "key_embedding", "value_embedding"):
        layer.get_parameter(name).zero_()
    return layer


def gqa_of_as_many(other: Attention) -> Attention:
    """g is the number of the other kind's key heads."""
    return like("gqa", other, kv_heads=other.kv_heads)


def with_equal_keys_and_values(skv: Attention) -> Attention:
    """Both projections are copies of the shared one."""
    layer = like("mha", skv)
    layer.k_proj.load_state_dict(skv.kv_proj.state_dict())
    layer.v_proj.load_state_dict(skv.kv_proj.state_dict())
    return layer


def el_as_skv(el: Attention) -> Attention:
    """The identity as projection returns the input itself."""
    layer = like("skv", el)
    layer.kv_proj.weight.copy_(torch.eye(EMBED_DIM))
    if layer.bias:
        layer.kv_proj.bias.zero_()
    return layer


def mla_of_everything(mha: Attention) -> Attention:
    """r = C and W_D is the identity: the input itself is the latent vector.

    Attention weights sum to 1, so the output's bias can contain the bias of MHA's values.
    """
    layer = like("mla", mha, latent_dim=EMBED_DIM)
    layer.down_proj.weight.copy_(torch.eye(EMBED_DIM))
    layer.k_up_proj.weight.copy_(mha.k_proj.weight)
    layer.v_up_proj.weight.copy_(mha.v_proj.weight)
    if mha.bias:
        layer.down_proj.bias.zero_()
        layer.out_proj.bias.add_(mha.out_proj.weight @ mha.v_proj.bias)
    return layer


def collaborative_of_blocks(mha: Attention) -> Attention:
    """D = n d: MHA's queries and keys of all heads side by side; head i mixes only its own block.

    Of the terms with MHA's biases softmax ignores all but b_Q^i (Y W_K^i)^T, the content term.
    """
    layer = like("collaborative", mha, collaborative_dim=EMBED_DIM)
    layer.mixing.copy_(torch.eye(HEADS).repeat_interleave(mha.head_dim, dim=1))
    if mha.bias:
        keys = mha.k_proj.weight.unflatten(0, (HEADS, -1))  # (H, d, C)
        biases = mha.q_proj.bias.unflatten(0, (HEADS, -1))
        layer.content_proj.weight.copy_(torch.einsum("hdc,hd->hc", keys, biases) * mha.scaling)
    return layer


def tucker_with_diagonal_scores(mul: Attention) -> Attention:
    """a = n, b = d and c = n d: C_i is diagonal; D_i scales head i and selects its rows of W_O."""
    d = mul.head_dim
    ranks = {"tucker_head_rank": HEADS, "tucker_query_rank": d, "tucker_key_rank": EMBED_DIM}
    layer = like("tucker", mul, **ranks)
    for name, parameter in layer.k_proj.named_parameters():
        parameter.zero_()[:d] = mul.k_proj.get_parameter(name)
    scores = (1 + mul.query_embedding) * (1 + mul.key_embedding)  # (n, d)
    for name in ("score", "output"):
        layer.get_parameter(f"{name}_weights").copy_(torch.eye(HEADS))
        layer.get_parameter(f"{name}_matrices").zero_()  # (n, d, n d)
    for i in range(HEADS):
        layer.score_matrices[i, :, :d] = scores[i].diag()
        layer.output_matrices[i, :, i * d : (i + 1) * d] = (1 + mul.value_embedding[i]).diag()
    return layer


def tpa_with_a_selector(mqa: Attention) -> Attention:
    """R = 1 and a_i = 1 for all heads, by biases."""
    layer = like("tpa", mqa)
    for numbers in (layer.k_head_proj, layer.v_head_proj):
        numbers.weight.zero_()
        numbers.bias.fill_(1.0)
    return layer


def mfa_of_full_rank(mqa: Attention) -> Attention:
    """r = C and A is the identity."""
    layer = like("mfa", mqa, query_rank=EMBED_DIM, query_norm="none")
    layer.q_down_proj.weight.copy_(torch.eye(EMBED_DIM))
    if mqa.bias:
        layer.q_down_proj.bias.zero_()
    return layer


def mul_without_neighbours(mul: Attention) -> Attention:
    """e_i1 = e_i2 = 0, so scores ignore the keys before; W_O contains the value's factors."""
    layer = without_neighbours("mhe_conv", mul)
    layer.taps[:, 0] = (1 + mul.query_embedding) * (1 + mul.key_embedding)
    layer.out_proj.weight.mul_(1 + mul.value_embedding.flatten())
    return layer


def without_neighbours(kind: str, original: Attention) -> Attention:
    layer = like(kind, original)
    for name, taps in layer.named_parameters():
        if name.endswith("taps"):  # (n, 3, d) or (3, n d)
            taps.copy_(torch.eye(3)[0].unsqueeze(1))
    return layer


#: Relation -> a kind, and a function that builds an equal layer of another kind.
RELATIONS: dict[str, tuple[str, Any]] = {
    "mqa with equal queries is sha": ("sha", sha_as_mqa),
    "mhe_mul with zero embeddings is sha": ("sha", partial(without_embeddings, "mhe_mul")),
    "mhe_add with zero embeddings is sha": ("sha", partial(without_embeddings, "mhe_add")),
    "gqa with g = n is mha": ("mha", gqa_of_as_many),
    "gqa with g = 1 is mqa": ("mqa", gqa_of_as_many),
    "mha with equal keys and values is skv": ("skv", with_equal_keys_and_values),
    "skv with the identity as projection is el": ("el", el_as_skv),
    "mla with r = C and no compression is mha": ("mha", mla_of_everything),
    "collaborative with D = n d and block mixing is mha": ("mha", collaborative_of_blocks),
    "tucker with diagonal scores is mhe_mul": ("mhe_mul", tucker_with_diagonal_scores),
    "tpa with heads that weigh nothing is mqa": ("mqa", tpa_with_a_selector),
    "mfa with r = C and no norm is mqa": ("mqa", mfa_of_full_rank),
    "mha_conv without neighbours is mha": ("mha", partial(without_neighbours, "mha_conv")),
    "mhe_conv without neighbours is mhe_mul": ("mhe_mul", mul_without_neighbours),
    "mqa_conv without neighbours is mqa": ("mqa", partial(without_neighbours, "mqa_conv")),
    "mha_dconv without neighbours is mha": ("mha", partial(without_neighbours, "mha_dconv")),
}


#: In tpa a weight of 1 for every input needs a bias.
CASES = [(name, bias) for name in RELATIONS for bias in (False, True) if bias or name[:3] != "tpa"]


@pytest.mark.parametrize(("relation", "bias"), CASES)
@torch.no_grad()
def test_equations_are_equal_with_the_right_weights(relation: str, bias: bool) -> None:
    """test_kinds.py compares each equation with the code, in all places and for all masks."""
    kind, convert = RELATIONS[relation]
    original = make_layer(kind, bias=bias)
    x, y = random(5, 3, EMBED_DIM), random(7, 3, EMBED_DIM, seed=1)
    assert_close(equation(convert(original), x, y), equation(original, x, y), **EXACT)
