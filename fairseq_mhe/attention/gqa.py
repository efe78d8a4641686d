"""Grouped-query attention, Ainslie et al. 2023, section 2.2; multi-query, Shazeer 2019, section 3.

Head i of group j: softmax(X W_Q^i (Y W_K^j)^T / sqrt(d)) Y W_V^j, with n / g heads a group; MQA has
one group. Parameters without biases: 2 C n d + kdim g d + vdim g d; for MQA with n d = C: 2 C^2 + 2
C d.
"""

import math
from typing import Any

import torch

from fairseq_mhe.attention.base import Attention
from fairseq_mhe.attention.fitting import Fitted, Parameters, Problem, Trained, means, shared_rows
from fairseq_mhe.attention.heads import Heads
from fairseq_mhe.attention.sublayer import Option


class GroupedQueryAttention(Attention):
    """Every head has its own query; g key and value heads are shared by n / g heads each.

    g is 2 (1 where the number of heads is odd) unless given: 1 is MQA, ``num_heads`` is MHA.
    """

    OPTIONS: tuple[Option, ...] = (
        *Attention.OPTIONS,
        Option(
            "attention_kv_heads",
            int,
            None,
            "key/value heads, a divisor of the number of heads (default: 2, or 1 where that number "
            "is odd)",
        ),
    )
    kv_heads: int | None = None

    def __init__(self, embed_dim: int, num_heads: int, **given: Any) -> None:
        super().__init__(embed_dim, num_heads, **given)
        groups = math.gcd(2, num_heads) if self.kv_heads is None else self.kv_heads
        if groups < 1 or num_heads % groups:
            raise ValueError(
                f"kv_heads {groups} does not divide num_heads {num_heads}: choose a divisor"
            )
        self.project(num_heads, kept=groups)

    def written_out(self) -> Heads:
        """A group's key and value head stands in each of its heads."""
        return Heads.of_projections(self)

    def fitted(self, trained: Trained) -> Fitted:
        """A group's scores share the rows of its key, its outputs the rows of its value."""
        p = Problem(self, trained)
        keys, queries, values, outputs = [], [], [], []
        groups = self.key_heads
        for scores, output in zip(p.scores.chunk(groups), p.outputs.chunk(groups), strict=True):
            # Errors count by the query's size: rows are chosen with it, then every query is free.
            rows, factors = shared_rows(p.of_query[0] @ scores, p.of_memory, self.head_dim)
            keys.append(rows)
            queries.append(p.of_query[1] @ factors)  # (n / g, X, d)
            value, own = p.shared_values(output)
            values.append(value)
            outputs.append(own)
        query = torch.cat(queries).transpose(1, 2).flatten(0, 1)  # (n d, X)
        found = p.parameters(query, torch.cat(keys), torch.cat(values), torch.cat(outputs))
        return Fitted(found)

    def pooled(self, heads: Heads) -> Parameters:
        """A group's key and value are the means of its heads'."""
        return means(self, heads)


class MultiQueryAttention(GroupedQueryAttention):
    """One key and one value head for all queries."""

    OPTIONS = Attention.OPTIONS
    kv_heads = 1
