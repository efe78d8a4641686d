"""The registry of kinds of attention: a name, its class, and one function that builds it."""

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.collaborative import CollaborativeAttention
from fairseq_mhe.attention.conv import MHAConv, MHEConv
from fairseq_mhe.attention.el import ELAttention
from fairseq_mhe.attention.gqa import GroupedQueryAttention, MultiQueryAttention
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEAdd, MHEMul
from fairseq_mhe.attention.mla import LatentAttention
from fairseq_mhe.attention.sha import SingleHeadAttention
from fairseq_mhe.attention.skv import SharedKeyValueAttention

KINDS: dict[str, type[Attention]] = {
    "mha": MultiheadAttention,
    "mhe_mul": MHEMul,
    "mhe_add": MHEAdd,
    "sha": SingleHeadAttention,
    "mqa": MultiQueryAttention,
    "gqa": GroupedQueryAttention,
    "mla": LatentAttention,
    "skv": SharedKeyValueAttention,
    "el": ELAttention,
    "collaborative": CollaborativeAttention,
    "mhe_conv": MHEConv,
    "mha_conv": MHAConv,
}


def kind_class(name: str) -> type[Attention]:
    """The class of attention ``name``.

    Raises:
        ValueError: there is none of that name; the message lists those that are.
    """
    if name not in KINDS:
        raise ValueError(f"unknown attention {name!r}; choose one of: {', '.join(KINDS)}")
    return KINDS[name]


def build_attention(
    name: str,
    embed_dim: int,
    num_heads: int,
    *,
    kdim: int | None = None,
    vdim: int | None = None,
    dropout: float = 0.0,
    bias: bool = False,
    self_attention: bool = False,
    encoder_decoder_attention: bool = False,
    q_noise: float = 0.0,
    qn_block_size: int = 8,
    **options: int | float | str | None,
) -> Attention:
    """Build the attention sublayer ``name``, called as fairseq's ``MultiheadAttention`` is.

    Args:
        name: a key of ``KINDS``.
        embed_dim, num_heads, kdim, vdim, dropout, bias, self_attention, encoder_decoder_attention,
            q_noise, qn_block_size: as of :class:`Attention`.
        options: of the kind, by name: those in its class's ``OPTIONS`` (docs/attention.md).

    Raises:
        ValueError: an unknown name, sizes that do not fit, or an option that the kind would ignore.
    """
    return kind_class(name)(
        embed_dim,
        num_heads,
        kdim=kdim,
        vdim=vdim,
        dropout=dropout,
        bias=bias,
        self_attention=self_attention,
        encoder_decoder_attention=encoder_decoder_attention,
        q_noise=q_noise,
        qn_block_size=qn_block_size,
        kind=name,
        **options,
    )


__all__ = ["KINDS", "Attention", "build_attention", "kind_class"]
