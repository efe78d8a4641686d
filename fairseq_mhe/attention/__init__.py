"""The registry of attention variants: a name, its class, and one function that builds it."""

from __future__ import annotations

import inspect
from typing import Any

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.collaborative import CollaborativeAttention
from fairseq_mhe.attention.el import ELAttention
from fairseq_mhe.attention.gqa import GroupedQueryAttention, MultiQueryAttention
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEAdd, MHEMul
from fairseq_mhe.attention.sha import SingleHeadAttention
from fairseq_mhe.attention.skv import SharedKeyValueAttention

VARIANTS: dict[str, type[Attention]] = {
    "mha": MultiheadAttention,
    "mhe_mul": MHEMul,
    "mhe_add": MHEAdd,
    "sha": SingleHeadAttention,
    "mqa": MultiQueryAttention,
    "gqa": GroupedQueryAttention,
    "skv": SharedKeyValueAttention,
    "el": ELAttention,
    "collaborative": CollaborativeAttention,
}


def variant(name: str) -> type[Attention]:
    """The class of attention ``name``.

    Raises:
        ValueError: there is none of that name; the message lists those that are.
    """
    if name not in VARIANTS:
        raise ValueError(f"unknown attention {name!r}; choose one of: {', '.join(VARIANTS)}")
    return VARIANTS[name]


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
    **options: Any,
) -> Attention:
    """Build the attention sublayer ``name``, called as fairseq's ``MultiheadAttention`` is.

    Args:
        name: a key of ``VARIANTS``. embed_dim, num_heads, kdim, vdim, dropout, bias,
        self_attention, encoder_decoder_attention: as fairseq's.
        options: ``head_dim`` and the variant's own (its class's ``options``).

    Raises:
        ValueError: an unknown name, sizes that do not fit, or an option that the variant would
        ignore.
    """
    ignored = (
        set(options)
        - set(variant(name).options)
        - set(inspect.signature(Attention.__init__).parameters)
    )
    if ignored:
        raise ValueError(
            f"attention {name!r} does not use {', '.join(sorted(ignored))}: leave it out"
        )
    return variant(name)(
        embed_dim,
        num_heads,
        kdim=kdim,
        vdim=vdim,
        dropout=dropout,
        bias=bias,
        self_attention=self_attention,
        encoder_decoder_attention=encoder_decoder_attention,
        **options,
    )


__all__ = ["VARIANTS", "Attention", "build_attention", "variant"]
