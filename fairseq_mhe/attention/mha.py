"""Multi-head attention (MHA): Vaswani et al. 2017, section 3.2.2 (arXiv 1706.03762).

Queries come from X, keys and values from Y. Head i of n heads of width d is
softmax(X W_Q^i (Y W_K^i)^T / sqrt(d)) Y W_V^i; the output is concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d + vdim n d, or 4 C^2 if n d = kdim = vdim = C.
"""

from fairseq_mhe.attention.base import Attention


class MultiheadAttention(Attention):
    """Every head has its own projections. Names and initial values of weights are fairseq's."""

    projects_together = True
