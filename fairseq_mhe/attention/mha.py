"""Multi-head attention: Vaswani et al. 2017, section 3.2.2.

Head i: softmax(X W_Q^i (Y W_K^i)^T / sqrt(d)) Y W_V^i; output concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d + vdim n d, that is 4 C^2.
"""

from fairseq_mhe.attention.base import Attention


class MultiheadAttention(Attention):
    """Every head has projections of its own; weights are named and initialised as fairseq's."""

    projects_together = True
