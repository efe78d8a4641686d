"""The registry of kinds of attention: their names, their classes, and `build_attention`."""

from typing import Any

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.collaborative import CollaborativeAttention
from fairseq_mhe.attention.conv import MHAConv, MHEConv, MQAConv
from fairseq_mhe.attention.dconv import DepthwiseConvAttention
from fairseq_mhe.attention.el import ELAttention
from fairseq_mhe.attention.gqa import GroupedQueryAttention, MultiQueryAttention
from fairseq_mhe.attention.mfa import FactorizedQueryAttention
from fairseq_mhe.attention.mha import MultiheadAttention
from fairseq_mhe.attention.mhe import MHEAdd, MHEMul
from fairseq_mhe.attention.mla import LatentAttention
from fairseq_mhe.attention.sha import SingleHeadAttention
from fairseq_mhe.attention.skv import SharedKeyValueAttention
from fairseq_mhe.attention.tpa import TensorProductAttention
from fairseq_mhe.attention.tucker import TuckerAttention

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
    "mqa_conv": MQAConv,
    "mha_dconv": DepthwiseConvAttention,
    "tucker": TuckerAttention,
    "tpa": TensorProductAttention,
    "mfa": FactorizedQueryAttention,
}


def kind_class(name: str) -> type[Attention]:
    """Return the class of the kind ``name``; ValueError with all names if there is none."""
    if name not in KINDS:
        why = f"unknown attention {name!r}; choose one of: {', '.join(KINDS)}"
        raise ValueError(f"{why}; a kind of your own needs its package (--user-dir)")
    return KINDS[name]


def build_attention(
    name: str, embed_dim: int, num_heads: int, **options: Any
) -> Attention:
    """Build a sublayer of the kind ``name`` (a key of ``KINDS``), called like fairseq's.

    ``options`` are further arguments of :class:`Attention` and the kind's own ``OPTIONS``
    (docs/attention.md). Raises ValueError if sizes and options do not fit together.
    """
    return kind_class(name)(embed_dim, num_heads, kind=name, **options)


__all__ = ["KINDS", "Attention", "build_attention", "kind_class"]
