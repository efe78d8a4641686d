"""Multi-head attention (MHA): Vaswani et al. 2017, section 3.2.2 (arXiv 1706.03762).

Queries come from X, keys and values from Y. Head i of n heads of width d is
softmax(X W_Q^i (Y W_K^i)^T / sqrt(d)) Y W_V^i; the output is concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d + vdim n d, or 4 C^2 if n d = kdim = vdim = C.
"""

from typing import Any

from torch import Tensor

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.equations import Result, attend_heads, heads_of


class MultiheadAttention(Attention):
    """Every head has its own projections. Names and initial values of weights are fairseq's."""

    plain_heads = Attention.plain_heads

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Split the one projection for q, k and v of fairseq 0.8 and before, as fairseq does."""
        for parameter in ("weight", "bias"):
            # (3 C, C) or (3 C,)
            packed = state_dict.pop(f"{name}.in_proj_{parameter}", None)
            if packed is None:
                continue
            query, key, value = packed.chunk(3)
            state_dict[f"{name}.q_proj.{parameter}"] = query
            state_dict[f"{name}.k_proj.{parameter}"] = key
            state_dict[f"{name}.v_proj.{parameter}"] = value

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        queries = heads_of(self.q_proj, x, self.num_heads)
        keys = heads_of(self.k_proj, y, self.num_heads)
        values = heads_of(self.v_proj, y, self.num_heads)
        return attend_heads(queries, keys, values, mask, self.out_proj)
