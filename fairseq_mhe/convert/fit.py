"""How each kind of attention is fitted to trained heads: a function a kind, in the table ``FIT``.

Head by head, the two maps that a head is are approximated: its scores x^T A_i y (of which softmax
ignores what is the same for every y) and its output B_i y. Where real inputs were measured, errors
count as they do on those. Truncated singular value decompositions are exact minimisers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.conv import TAPS
from fairseq_mhe.attention.written_out import WrittenOut
from fairseq_mhe.convert.cp import Components, decompose
from fairseq_mhe.convert.moments import Inputs

#: Parameters of a sublayer by their names in its module, float64.
Parameters = dict[str, Tensor]
#: Eigenvalues below this share of the largest count as this share: the data hardly show them.
FLOOR = 1e-6


class Problem:
    """Heads to approximate by a new sublayer, errors counting as they do on ``inputs``."""

    #: Of kinds whose scores are a CP decomposition.
    components: Components | None = None

    def __init__(
        self, new: Attention, heads: WrittenOut, inputs: Inputs, iterations: int = 100
    ) -> None:
        """``iterations``: most rounds of least squares of a CP decomposition."""
        self.new: Any = new
        self.heads, self.inputs = heads.scaled(new.scaling), inputs
        self.iterations = iterations
        self.width = new.head_dim
        self.bias = new.bias
        query = self.heads.query  # (n, k, C)
        moments = inputs.query.second  # (C, C)
        # X is C, or C + 1 with biases: one more entry of the query's input is always 1.
        if self.bias:
            biases = self.heads.query_bias.unsqueeze(2)  # (n, k, 1)
            query = torch.cat((query, biases), dim=2)  # (n, k, X)
            mean = pad(inputs.query.mean, (0, 1), value=1.0)  # (X,)
            covariance = pad(inputs.query.covariance, (0, 1, 0, 1))  # (X, X)
            moments = covariance + mean.outer(mean)  # (X, X)
        # (n, X, M), without the scale
        self.scores = query.transpose(1, 2) @ self.heads.key
        self.outputs = heads.output @ heads.value  # (n, C, M), without biases
        # (C,), what heads add whatever the input: value biases through the output, and its own.
        values = heads.output @ heads.value_bias.unsqueeze(2)  # (n, C, 1)
        self.constant = values.sum(dim=0).squeeze(1) + heads.output_bias
        self.of_query = root(moments)  # (X, X) twice
        # (M, M) twice: softmax ignores the mean
        self.of_memory = root(inputs.memory.covariance)
        # Where a bias can make up for the mean, only what varies counts in the output.
        self.of_value = self.of_memory if self.bias else root(inputs.memory.second)

    def parameters(
        self, query: Tensor, key: Tensor, value: Tensor, output: Tensor
    ) -> Parameters:
        """Of queries (rows, X), keys (rows, M), values (n or g, d, M) and outputs (n, C, d)."""
        # Softmax would ignore a key's bias; what is constant in the values goes in the output's.
        width = self.heads.query.size(2)  # C
        values = value.flatten(0, 1)  # (n d or g d, M)
        parameters = {
            "q_proj.weight": query[:, :width],
            "q_proj.bias": query[:, width:].flatten(),
            "k_proj.weight": key,
            "k_proj.bias": key.new_zeros(len(key)),
            "v_proj.weight": values,
            "v_proj.bias": values.new_zeros(len(values)),
            "out_proj.weight": output.transpose(0, 1).flatten(1),
            "out_proj.bias": self.lost_constant(value, output),
        }
        if self.bias:
            return parameters
        return {name: value for name, value in parameters.items() if "bias" not in name}

    def shared_values(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The best values (1, d, M) for ``outputs`` (n, C, M), and they through it (n, C, d)."""
        rows, factors = shared_rows(outputs, self.of_value, self.width)
        return rows.unsqueeze(0), factors

    def lost_constant(self, value: Tensor, output: Tensor) -> Tensor:
        """(C,): the heads' constants, and what the approximation misses at the memory's mean."""
        group = len(self.outputs) // len(value)
        each = value.repeat_interleave(group, dim=0)  # (n, d, M)
        missed = (self.outputs - output @ each).sum(dim=0) @ self.inputs.memory.mean
        return missed + self.constant

    def factors_of_scores(self) -> tuple[Parameters, Tensor]:
        """Shared projections, and the factors (n, d) of a shared query that come closest."""
        weighted = self.of_query[0] @ self.scores @ self.of_memory[0]  # (n, X, M)
        rank = self.heads.key.size(1)
        components = decompose(weighted, self.width, rank, self.iterations)
        self.components = components
        # Factors of size 1 on average, as those of a new model are.
        size = components.mixing.square().mean(dim=0).sqrt()  # (d,)
        factors = torch.where(size > 0, components.mixing / size, 1.0)  # (n, d)
        half = size.sqrt().unsqueeze(1)  # (d, 1), for query and key each
        query = components.query * half @ self.of_query[1]  # (d, X)
        key = components.key * half @ self.of_memory[1]  # (d, M)
        value, output = self.shared_values(self.outputs)
        return self.parameters(query, key, value, output), factors


def fit_grouped(p: Problem) -> Parameters:
    """gqa, mqa: a group's scores share the rows of its key, its outputs the rows of its value."""
    keys, queries, values, outputs = [], [], [], []
    groups = p.new.key_heads
    grouped = zip(p.scores.chunk(groups), p.outputs.chunk(groups), strict=True)
    for scores, output in grouped:
        # Errors count by the query's size: rows are chosen with it, then every query is free.
        rows, factors = shared_rows(p.of_query[0] @ scores, p.of_memory, p.width)
        keys.append(rows)
        queries.append(p.of_query[1] @ factors)  # (n / g, X, d)
        value, own = p.shared_values(output)
        values.append(value)
        outputs.append(own)
    query = torch.cat(queries).transpose(1, 2).flatten(0, 1)  # (n d, X)
    key = torch.cat(keys)  # (g d, M)
    value = torch.cat(values)  # (g, d, M)
    return p.parameters(query, key, value, torch.cat(outputs))


def fit_mhe_mul(p: Problem) -> Parameters:
    """Scores with one factor a head and channel are a CP decomposition; W_O has the values'."""
    parameters, factors = p.factors_of_scores()
    offset = p.new.head_embedding_offset
    one = torch.full_like(factors, 1 - offset)
    # All in e^Q: where a factor is 0 it can still learn, which it could not if e^K made half of it.
    parameters["query_embedding"] = factors - offset
    parameters["key_embedding"] = one
    parameters["value_embedding"] = one.clone()
    return parameters


def fit_mhe_conv(p: Problem) -> Parameters:
    """As MHE-Mul comes closest, without neighbours."""
    parameters, factors = p.factors_of_scores()
    taps = [factors, *[torch.zeros_like(factors)] * (TAPS - 1)]  # (n, d) each
    parameters["taps"] = torch.stack(taps, dim=1)  # (n, 3, d)
    return parameters


def fit_mhe_add(p: Problem) -> Parameters:
    """The heads' mean score of x, and a shift a head: the score of a key whatever the query."""
    heads = p.heads
    n, _, width = heads.query.shape  # width: C
    mean = p.inputs.query.mean  # (C,)
    half, inverse = root(p.inputs.query.covariance)
    varying = p.scores[:, :width].mean(dim=0)  # (C, M)
    at_mean = heads.query @ mean + heads.query_bias  # (n, k)
    fixed = (at_mean.unsqueeze(1) @ heads.key).squeeze(1)  # (n, M)
    # All n heads share the varying part, so its square errors count n times.
    wanted = torch.cat((n**0.5 * half @ varying, fixed)).unsqueeze(0)  # (1, C + n, M)
    rows, factors = shared_rows(wanted, p.of_memory, p.width)
    query = (inverse @ factors[0, :width] / n**0.5).T  # (d, C)
    shift = factors[0, width:] - query @ mean  # (n, d)
    value, output = shared_rows(p.outputs, p.of_memory, p.width)
    query = pad(query, (0, 1))  # (d, C + 1)
    parameters = p.parameters(query, rows, value.unsqueeze(0), output)
    # The shifts that write what is constant, the shortest of them; a bias has the rest.
    constant = p.lost_constant(value.unsqueeze(0), output)  # (C,)
    joined = parameters["out_proj.weight"]  # (C, n d)
    shifts = torch.linalg.pinv(joined) @ constant  # (n d,)
    if p.bias:
        parameters["out_proj.bias"] = constant - joined @ shifts
    parameters["query_embedding"] = shift
    parameters["key_embedding"] = torch.zeros_like(shift)
    parameters["value_embedding"] = shifts.unflatten(0, (n, -1))
    return parameters


def fit_collaborative(p: Problem) -> Parameters:
    """The scores' forms, stacked, are a CP decomposition; exact for D = n d (change_kind.py)."""
    heads = p.heads
    query_root, query_inverse = root(p.inputs.query.second)
    key_root, key_inverse = p.of_memory
    scores = heads.query.transpose(1, 2) @ heads.key  # (n, C, M), no biases and no scale
    forms = query_root @ scores @ key_root
    rank = min(heads.key.size(1), *forms.shape[1:])
    components = decompose(forms, p.new.collaborative_dim, rank, p.iterations)
    p.components = components
    parameters = {
        "q_proj.weight": components.query @ query_inverse,  # (D, C)
        "k_proj.weight": components.key @ key_inverse,  # (D, M)
        "mixing": components.mixing,  # (n, D)
        "v_proj.weight": heads.value.flatten(0, 1),
        "out_proj.weight": heads.output.transpose(0, 1).flatten(1),
    }
    if p.bias:
        content = heads.scale * (heads.query_bias.unsqueeze(1) @ heads.key)  # (n, 1, M)
        parameters |= {
            "v_proj.bias": heads.value_bias.flatten(),
            "out_proj.bias": heads.output_bias,
            "content_proj.weight": content.squeeze(1),
        }
    return parameters


FIT: dict[str, Callable[[Problem], Parameters]] = {
    "mhe_mul": fit_mhe_mul,
    "mhe_add": fit_mhe_add,
    "mqa": fit_grouped,
    "gqa": fit_grouped,
    "mhe_conv": fit_mhe_conv,
    "collaborative": fit_collaborative,
}


def root(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The symmetric square root of a covariance (C, C), and its inverse; see ``FLOOR``."""
    values, vectors = torch.linalg.eigh(matrix)
    least = float(values.max()) * FLOOR
    values = values.clamp(min=least).sqrt()
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


def shared_rows(
    forms: Tensor, weight: tuple[Tensor, Tensor], width: int
) -> tuple[Tensor, Tensor]:
    """The best rows (width, M) that all of ``forms`` (n, A, M) are seen through, and for each form
    its own factor (n, A, width): form ~ factor rows on inputs of ``weight``.
    """
    half, inverse = weight
    weighted = forms @ half  # (n, A, M)
    flat = weighted.flatten(0, 1)
    values, vectors = torch.linalg.eigh(flat.T @ flat)  # ascending
    values = values.clamp(min=0).flip(0)[:width]
    basis = vectors[:, -width:].flip(1)  # (M, d)
    missing = width - basis.size(1)
    basis = pad(basis, (0, missing))
    values = pad(values, (0, missing))
    size = values**0.25  # query and key share the size of what they make
    rows = size.unsqueeze(1) * basis.T @ inverse
    factors = weighted @ basis / size.where(size > 0, 1.0)
    return rows, factors
