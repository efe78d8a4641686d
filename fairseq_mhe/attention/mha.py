"""Multi-head attention (MHA): Vaswani et al. 2017, section 3.2.2 (arXiv 1706.03762).

Queries come from X, keys and values from Y. Head i of n heads of width d is
softmax(X W_Q^i (Y W_K^i)^T / sqrt(d)) Y W_V^i; the output is concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d + vdim n d, or 4 C^2 if n d = kdim = vdim = C.
"""

from typing import Any

from fairseq_mhe.attention.base import Attention


class MultiheadAttention(Attention):
    """Every head has its own projections. Names and initial values of weights are fairseq's."""

    projects_together = True

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Split the one projection for q, k and v of fairseq 0.8 and before, as fairseq does."""
        for parameter in ("weight", "bias"):
            packed = state_dict.pop(
                f"{name}.in_proj_{parameter}", None
            )  # (3 C, C) or (3 C,)
            if packed is not None:
                parts = packed.chunk(3)
                for layer, part in zip(
                    ("q_proj", "k_proj", "v_proj"), parts, strict=True
                ):
                    state_dict[f"{name}.{layer}.{parameter}"] = part
