"""Multi-query attention whose keys are its values: one state of d numbers is all that is cached.

Head i: S = Y W_S; softmax(X W_Q^i S^T / sqrt(d)) S; output concat(heads) W_O. It is Shazeer 2019,
section 3, with the shared keys and values of Xue & Aletras 2023, section 4; the "Q-K=V + MQA" of
arXiv 2606.04032 (2026), and what the grouped-tied attention of Zadouri, Strauss & Dao 2025 (arXiv
2505.21487) is with one group and without rotary positions.
Parameters without biases: 2 C n d + kdim d.
"""

from typing import Any

import torch
from torch import Tensor

from fairseq_mhe.attention.base import Attention, split_heads
from fairseq_mhe.attention.fitting import Fitted, Parameters, Problem, Trained, means, shared_rows
from fairseq_mhe.attention.heads import Heads, projected


class MultiQuerySharedKeyValueAttention(Attention):
    """One projection to one head serves as key and value of all heads."""

    keys_are_values = True

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        self.check_one_input()
        self.key_heads = self.value_heads = 1
        self.kv_proj = self.input_linear(self.kdim, self.head_dim)
        self.q_proj = self.input_linear(embed_dim, num_heads * self.head_dim)
        self.out_proj = self.output_linear()

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, kdim) -> one (B, 1, S, d), as both; ``value`` is the same input."""
        shared = split_heads(self.kv_proj(key), 1)
        return shared, shared

    def written_out(self) -> Heads:
        """One projection is key and value of every head."""
        shared = projected(self.kv_proj, 1, self.num_heads)
        query = projected(self.q_proj, self.num_heads, self.num_heads)
        return Heads.of(self, query, shared, shared)

    def fitted(self, trained: Trained) -> Fitted:
        """Scores and outputs of all heads, each of size 1, share the rows of the one state."""
        p = Problem(self, trained)
        scores, outputs = p.of_query[0] @ p.scores, p.outputs  # (n, X, M), (n, C, M)
        least = torch.finfo(scores.dtype).tiny
        sizes = [(forms @ p.of_value[0]).norm().clamp(min=least) for forms in (scores, outputs)]
        forms = torch.cat((scores / sizes[0], outputs / sizes[1]), dim=1)  # (n, X + C, M)
        rows, factors = shared_rows(forms, p.of_value, self.head_dim)  # (d, M), (n, X + C, d)
        of_scores, of_outputs = factors.split((scores.size(1), outputs.size(1)), dim=1)
        query = (p.of_query[1] @ of_scores * sizes[0]).transpose(1, 2).flatten(0, 1)  # (n d, X)
        found = p.parameters(query, rows, rows.unsqueeze(0), of_outputs * sizes[1])
        return Fitted(joined(found))

    def pooled(self, heads: Heads) -> Parameters:
        """The mean of all heads' keys and values."""
        return joined(means(self, heads))


def joined(parameters: Parameters) -> Parameters:
    """Key and value projection, equal or not, become the one between them."""
    found = {}
    for name, value in parameters.items():
        if name.startswith("k_proj"):
            other = parameters[name.replace("k_proj", "v_proj")]
            found[name.replace("k_proj", "kv_proj")] = (value + other) / 2
        elif not name.startswith("v_proj"):
            found[name] = value
    return found
