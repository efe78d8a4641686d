"""Multi-DConv-head attention (MDHA): Primer, So et al. 2021, section 4.2 (arXiv 2109.08668).

MHA with a filter after each projection: every channel of Q = X W_Q, of K = Y W_K and of V = Y W_V
has three taps e_0, e_1, e_2 of its own, and position t becomes sum_j e_j Q_{t-j}, with zeros before
the sentence. Head i is softmax(Q_i K_i^T / sqrt(d)) V_i; the output is concat(heads) W_O.
Parameters without biases: 2 C n d + kdim n d + vdim n d + 9 n d.

Primer is a decoder; here an encoder's filters look back, too. Biases are added after the filters.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.equations import Result, attend_heads, heads_of
from fairseq_mhe.attention.few_shapes import linear
from fairseq_mhe.attention.filters import TAPS, filtered


class DepthwiseConvAttention(Attention):
    """Each channel of queries, keys and values is filtered over three neighbouring positions.

    Taps start at 1/2 for a position itself and 1/6 for the two before it, as we remember the
    authors' code.
    """

    not_foldable_because = "its queries, keys and values read several positions"

    def build(self) -> None:
        super().build()
        self.q_taps = self.first_taps()
        self.k_taps = self.first_taps()
        self.v_taps = self.first_taps()

    def first_taps(self) -> nn.Parameter:
        """Return initial taps, (3, n d)."""
        taps = torch.empty(TAPS, self.all_heads_dim)
        return nn.Parameter(taps.copy_(torch.tensor([1 / 2, 1 / 6, 1 / 6]).unsqueeze(1)))

    def queries(self, x: Tensor) -> Tensor:
        """(T, B, C) -> (B, n, T, d)."""
        return self.filtered(x, self.q_proj, self.q_taps)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim), (S, B, vdim) -> (B, n, S, d), (B, n, S, d)."""
        keys = self.filtered(key, self.k_proj, self.k_taps)
        return keys, self.filtered(value, self.v_proj, self.v_taps)

    def filtered(self, x: Tensor, layer: nn.Linear, taps: Tensor) -> Tensor:
        """(S, B, width) -> (B, n, S, d): project, filter by ``taps`` (3, n d), add the bias."""
        result = filtered(linear(x, layer.weight), taps, dim=-3)  # (S, B, n d)
        if layer.bias is not None:
            result = result + layer.bias
        return split_heads(result, self.num_heads)

    def project_inputs(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, **memory: Any
    ) -> tuple[Tensor, Any, Any]:
        """Filter over the inputs of earlier decoding steps, too; inputs at padding are 0."""
        padding, cache = memory["padding"], memory["cache"]
        of_itself = key is query
        if key is not None and value is not None and padding is not None:
            hidden = padding.bool().t().unsqueeze(2)  # (S, B, 1)
            key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
            query = key if of_itself else query
        earlier = 0
        if cache is not None:
            earlier = TAPS - 1
            query = cache.after_earlier(query, earlier)  # (2 + T, B, C)
        if of_itself:
            key = value = query
        queries, keys, values = super().project_inputs(query, key, value)
        if of_itself:
            keys, values = keys[:, :, earlier:], values[:, :, earlier:]
        return queries[:, :, earlier:], keys, values

    def equation(self, x: Tensor, y: Tensor, mask: Tensor) -> Result:
        queries = heads_of(self.q_proj, x, self.num_heads, self.q_taps)
        keys = heads_of(self.k_proj, y, self.num_heads, self.k_taps)
        values = heads_of(self.v_proj, y, self.num_heads, self.v_taps)
        return attend_heads(queries, keys, values, mask, self.out_proj)
