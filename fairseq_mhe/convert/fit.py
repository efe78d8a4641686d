"""Initial values for a smaller kind of attention from trained heads, by least squares.

Head by head, the two maps that a head is are approximated: its scores x^T A_i y (of which softmax
ignores what is the same for every y) and its output B_i y. Where real inputs were measured, errors
count as they do on those. Truncated singular value decompositions are exact minimisers; MHE-Mul's
scores need alternating least squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_mhe.convert.cp import decompose
from fairseq_mhe.convert.heads import Heads
from fairseq_mhe.convert.moments import Inputs, root

#: Parameters of a sublayer by their names in its module, float64.
Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Target:
    """What is wanted of a sublayer: ``width`` d of a head, ``groups`` of heads that share, whether it has biases.

    ``iterations``: most rounds of alternating least squares. ``offset``: MHE-Mul's 1 in (1 + b).
    """

    width: int
    groups: int = 1
    bias: bool = False
    iterations: int = 100
    offset: float = 1.0


def fit(
    kind: str,
    heads: Heads,
    inputs: Inputs,
    target: Target,
    advance: Callable[[], None] = lambda: None,
) -> Parameters:
    """The parameters of a sublayer of ``kind`` that come closest to ``heads``, on ``inputs``.

    Raises:
        KeyError: there is no rule for ``kind``.
    """
    return FITS[kind](_Problem(heads.scaled(target.width**-0.5), inputs, target, advance))


class _Problem:
    """One sublayer to approximate, its forms and weights prepared."""

    def __init__(
        self, heads: Heads, inputs: Inputs, target: Target, advance: Callable[[], None]
    ) -> None:
        self.heads, self.inputs, self.target, self.advance = heads, inputs, target, advance
        # With a bias, the query's input has one more entry that is always 1.
        query = (
            torch.cat((heads.query, heads.query_bias.unsqueeze(2)), dim=2)
            if target.bias
            else heads.query
        )
        self.scores = (
            query.transpose(1, 2) @ heads.key
        )  # (n, X, M), X = C or C + 1; without the scale
        self.outputs = heads.outputs()  # (n, C, M)
        self.of_query = root(
            inputs.query.with_one() if target.bias else inputs.query.second
        )  # (X, X) twice
        self.of_memory = root(inputs.memory.covariance)  # (M, M) twice: softmax ignores the mean
        # Where a bias can make up for the mean, only what varies counts in the output.
        self.of_value = self.of_memory if target.bias else root(inputs.memory.second)

    def query_layer(self, rows: Tensor) -> Parameters:
        """(rows, X) as the query projection's parameters."""
        if not self.target.bias:
            return {"q_proj.weight": rows}
        return {"q_proj.weight": rows[:, :-1], "q_proj.bias": rows[:, -1]}

    def key_layer(self, rows: Tensor) -> Parameters:
        """(rows, M) as the key projection's parameters; its bias would add the same to all of a query's scores."""
        return {
            "k_proj.weight": rows,
            **({"k_proj.bias": rows.new_zeros(len(rows))} if self.target.bias else {}),
        }

    def value_layers(self, value: Tensor, output: Tensor) -> Parameters:
        """Shared or own values (n or g, d, M) and outputs (n, C, d) as parameters; constants go in the bias."""
        parameters = {
            "v_proj.weight": value.flatten(0, 1),
            "out_proj.weight": output.transpose(0, 1).flatten(1),
        }
        if self.target.bias:
            parameters["v_proj.bias"] = value.new_zeros(value.shape[:2]).flatten()
            parameters["out_proj.bias"] = self.lost_constant(value, output)
        return parameters

    def lost_constant(self, value: Tensor, output: Tensor) -> Tensor:
        """(C,): the heads' constants, and what the approximation misses at the memory's mean."""
        each = value.repeat_interleave(self.heads.count // len(value), dim=0)  # (n, d, M)
        missed = (self.outputs - output @ each).sum(dim=0) @ self.inputs.memory.mean
        return missed + self.heads.constant()


def _shared_rows(forms: Tensor, weight: tuple[Tensor, Tensor], width: int) -> tuple[Tensor, Tensor]:
    """The best ``width`` rows that all of ``forms`` (n, A, M) are seen through.

    Returns:
        rows (width, M) and for each form its own factor (n, A, width), with form ~ factor rows on
        inputs of ``weight``.
    """
    half, inverse = weight
    weighted = forms @ half  # (n, A, M)
    flat = weighted.flatten(0, 1)
    values, vectors = torch.linalg.eigh(flat.T @ flat)  # ascending
    basis = vectors[:, -width:].flip(1)  # (M, d)
    if basis.size(1) < width:
        basis = torch.nn.functional.pad(basis, (0, width - basis.size(1)))
    # Query and key share the size of what they make.
    size = (
        torch.nn.functional.pad(
            values.clamp(min=0).flip(0)[:width], (0, max(0, width - len(values)))
        )
        ** 0.25
    )
    rows = size.unsqueeze(1) * basis.T @ inverse
    factors = weighted @ basis / size.where(size > 0, 1.0)
    return rows, factors


def _shared_values(problem: _Problem, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The best value projection for several outputs (n, C, M): (1, d, M), and the outputs through it (n, C, d)."""
    rows, factors = _shared_rows(outputs, problem.of_value, problem.target.width)
    return rows.unsqueeze(0), factors


def _gqa(p: _Problem) -> Parameters:
    """A group's scores share the rows of its key, its outputs the rows of its value."""
    keys, queries, values, outputs = [], [], [], []
    for scores, output in zip(
        p.scores.chunk(p.target.groups), p.outputs.chunk(p.target.groups), strict=True
    ):
        # Errors count by the query's size: the rows are chosen with it, then every query is free.
        weighted = p.of_query[0] @ scores
        rows, factors = _shared_rows(weighted, p.of_memory, p.target.width)
        keys.append(rows)
        queries.append(p.of_query[1] @ factors)  # (n / g, X, d)
        value, own = _shared_values(p, output)
        values.append(value)
        outputs.append(own)
    query = torch.cat(queries).transpose(1, 2).flatten(0, 1)  # (n d, X)
    return (
        p.query_layer(query)
        | p.key_layer(torch.cat(keys))
        | p.value_layers(torch.cat(values), torch.cat(outputs))
    )


def _mhe_mul(p: _Problem) -> Parameters:
    """Scores with one factor a head and channel are a CP decomposition; the values' factors are left to W_O."""
    weighted = p.of_query[0] @ p.scores @ p.of_memory[0]  # (n, X, M)
    found = decompose(weighted, p.target.width, p.heads.key.size(1), p.target.iterations, p.advance)
    # Factors of size 1 on average, as those of a new model are.
    size = found.mixing.square().mean(dim=0).sqrt()  # (d,)
    factors = torch.where(size > 0, found.mixing / size, 1.0)  # (n, d)
    query, key = (rows * size.sqrt().unsqueeze(1) for rows in (found.query, found.key))
    value, output = _shared_values(p, p.outputs)
    one = torch.full_like(factors, 1 - p.target.offset)
    return (
        p.query_layer(query @ p.of_query[1])
        | p.key_layer(key @ p.of_memory[1])
        | p.value_layers(value, output)
        # All in e^Q: where a factor is 0 it can still learn, which it could not if e^K made half of
        # it.
        | {
            "query_embedding": factors - p.target.offset,
            "key_embedding": one,
            "value_embedding": one.clone(),
        }
    )


def _mhe_add(p: _Problem) -> Parameters:
    """Heads differ in what they score a key by whatever the query: one score of x, on average, and a shift a head."""
    n, width = p.heads.count, p.heads.query.size(2)
    mean = p.inputs.query.mean  # (C,)
    half, inverse = root(p.inputs.query.covariance)
    varying = p.scores[:, :width].mean(dim=0)  # (C, M)
    at_mean = p.heads.query @ mean + p.heads.query_bias  # (n, k)
    fixed = (at_mean.unsqueeze(1) @ p.heads.key).squeeze(1)  # (n, M)
    rows, factors = _shared_rows(
        torch.cat((n**0.5 * half @ varying, fixed)).unsqueeze(0), p.of_memory, p.target.width
    )
    query = (inverse @ factors[0, :width] / n**0.5).T  # (d, C)
    shift = factors[0, width:] - query @ mean  # (n, d)
    value, output = _shared_rows(p.outputs, p.of_memory, p.target.width)
    lost = p.lost_constant(value.unsqueeze(0), output)
    joined = output.transpose(0, 1).flatten(1)  # (C, n d)
    parameters = {
        "q_proj.weight": query,
        "v_proj.weight": value,
        "out_proj.weight": joined,
        "query_embedding": shift,
        "key_embedding": torch.zeros_like(shift),
        # The shifts that write what is constant, the shortest of them.
        "value_embedding": (torch.linalg.pinv(joined) @ lost).unflatten(0, (n, -1)),
    }
    if p.target.bias:
        parameters |= {f"{name}_proj.bias": query.new_zeros(len(query)) for name in "qv"}
        parameters["out_proj.bias"] = lost - joined @ parameters["value_embedding"].flatten()
    return parameters | p.key_layer(rows)


#: How each kind is approximated.
FITS: dict[str, Callable[[_Problem], Parameters]] = {
    "mhe_mul": _mhe_mul,
    "mhe_add": _mhe_add,
    "mqa": _gqa,
    "gqa": _gqa,
}
