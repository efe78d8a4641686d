"""The registry of kinds of attention: a name, its class, and one function that builds it."""

from typing import Any

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
    """The class of attention ``name``; ValueError with the known names if there is none."""
    if name not in KINDS:
        why = f"unknown attention {name!r}; choose one of: {', '.join(KINDS)}"
        raise ValueError(f"{why}, or your own by --user-dir")
    return KINDS[name]


def build_attention(
    name: str, embed_dim: int, num_heads: int, **options: Any
) -> Attention:
    """Build the attention sublayer ``name``, called as fairseq's ``MultiheadAttention`` is.

    ``name``: a key of ``KINDS``; sizes: as of :class:`Attention`; ``options``: its other arguments,
    and the kind's ``OPTIONS`` (docs/attention.md). ValueError where they do not fit.
    """
    return kind_class(name)(embed_dim, num_heads, kind=name, **options)


__all__ = ["KINDS", "Attention", "build_attention", "kind_class"]
