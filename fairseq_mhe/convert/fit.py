"""Fit each kind of attention to trained heads: the table ``FIT`` has a function for each kind.

Head i maps a query's input x and a memory y to a score x^T A_i y (softmax ignores what is the same
for every y) and an output B_i y. A fit approximates both maps. If inputs were measured on real
sentences, their moments weight the errors. Truncated SVDs are exact minimisers.
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

#: Parameters of a sublayer by their names in its module, in float64.
Parameters = dict[str, Tensor]
#: Eigenvalues below this share of the largest are raised to it: the data hardly determine them.
FLOOR = 1e-6


class Problem:
    """The heads that a new sublayer has to approximate, with errors weighted by ``inputs``."""

    #: The decomposition of the scores, which the fits of some kinds set.
    components: Components | None = None

    def __init__(
        self, new: Attention, heads: WrittenOut, inputs: Inputs, iterations: int = 100
    ) -> None:
        """``iterations``: the most rounds of least squares for a CP decomposition."""
        self.new: Any = new
        self.heads, self.inputs = heads.scaled(new.scaling), inputs
        self.iterations = iterations
        self.width = new.head_dim
        self.bias = new.bias
        query = self.heads.query  # (n, k, C)
        moments = inputs.query.second_moment  # (C, C)
        # X is C, or C + 1 with biases: then the query's input ends in one more entry, always 1.
        if self.bias:
            biases = self.heads.query_bias.unsqueeze(2)  # (n, k, 1)
            query = torch.cat((query, biases), dim=2)  # (n, k, X)
            mean = pad(inputs.query.mean, (0, 1), value=1.0)  # (X,)
            covariance = pad(inputs.query.covariance, (0, 1, 0, 1))  # (X, X)
            moments = covariance + mean.outer(mean)  # (X, X)
        self.scores = query.transpose(1, 2) @ self.heads.key  # (n, X, M), unscaled
        self.outputs = heads.output @ heads.value  # (n, C, M), without biases
        # (C,): what value biases and the output's bias add to the output, whatever the input.
        values = heads.output @ heads.value_bias.unsqueeze(2)  # (n, C, 1)
        self.constant = values.sum(dim=0).squeeze(1) + heads.output_bias
        self.query_roots = root(moments)  # (X, X), and its inverse
        self.memory_roots = root(inputs.memory.covariance)  # softmax ignores the mean
        self.value_roots = self.memory_roots  # the output's bias corrects the mean
        if not self.bias:
            self.value_roots = root(inputs.memory.second_moment)

    def parameters(
        self, query: Tensor, key: Tensor, value: Tensor, output: Tensor
    ) -> Parameters:
        """Parameters of query (rows, X), key (rows, M), value (n or g, d, M), output (n, C, d)."""
        # Softmax ignores key biases. The output's bias does the work of the value biases.
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
            "out_proj.bias": self.output_constant(value, output),
        }
        if self.bias:
            return parameters
        return {name: value for name, value in parameters.items() if "bias" not in name}

    def shared_values(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Fit ``outputs`` (n, C, M) by one value (1, d, M) and each head's output (n, C, d)."""
        value, output = shared_rows(outputs, self.value_roots, self.width)
        return value.unsqueeze(0), output

    def output_constant(self, value: Tensor, output: Tensor) -> Tensor:
        """Return the output's bias (C,): the heads' constant and the fit's error at mean memory."""
        group = len(self.outputs) // len(value)
        repeated = value.repeat_interleave(group, dim=0)  # (n, d, M)
        missing = (self.outputs - output @ repeated).sum(dim=0) @ self.inputs.memory.mean
        return missing + self.constant

    def fit_factors(self) -> tuple[Parameters, Tensor]:
        """Fit shared projections, and the factors (n, d) by which the heads multiply the query."""
        weighted = self.query_roots[0] @ self.scores @ self.memory_roots[0]  # (n, X, M)
        rank = self.heads.key.size(1)
        components = decompose(weighted, self.width, rank, self.iterations)
        self.components = components
        # The mean square of a channel's factors becomes 1, near that of a new model.
        size = components.mixing.square().mean(dim=0).sqrt()  # (d,)
        factors = torch.where(size > 0, components.mixing / size, 1.0)  # (n, d)
        half = size.sqrt().unsqueeze(1)  # (d, 1), for query and key each
        query = components.query * half @ self.query_roots[1]  # (d, X)
        key = components.key * half @ self.memory_roots[1]  # (d, M)
        value, output = self.shared_values(self.outputs)
        return self.parameters(query, key, value, output), factors


def fit_grouped(p: Problem) -> Parameters:
    """Fit gqa or mqa: the heads of a group share the rows of a key and those of a value."""
    keys, queries, values, outputs = [], [], [], []
    groups = p.new.key_heads
    grouped = zip(p.scores.chunk(groups), p.outputs.chunk(groups), strict=True)
    for scores_of_group, outputs_of_group in grouped:
        # The key is fitted to weighted scores; the inverse then removes the weights from the query.
        weighted = p.query_roots[0] @ scores_of_group  # (n / g, X, M)
        key, query = shared_rows(weighted, p.memory_roots, p.width)
        keys.append(key)
        queries.append(p.query_roots[1] @ query)  # (n / g, X, d)
        value, output = p.shared_values(outputs_of_group)
        values.append(value)
        outputs.append(output)
    query = torch.cat(queries).transpose(1, 2).flatten(0, 1)  # (n d, X)
    key = torch.cat(keys)  # (g d, M)
    value = torch.cat(values)  # (g, d, M)
    return p.parameters(query, key, value, torch.cat(outputs))


def fit_mhe_mul(p: Problem) -> Parameters:
    """Fit MHE-Mul, whose scores are a CP decomposition; W_O includes the factors of the values."""
    parameters, factors = p.fit_factors()
    offset = p.new.head_embedding_offset
    one = torch.full_like(factors, 1 - offset)
    # e^Q holds the whole factor. Were a factor 0 split in two, it would get no gradient.
    parameters["query_embedding"] = factors - offset
    parameters["key_embedding"] = one
    parameters["value_embedding"] = one.clone()
    return parameters


def fit_mhe_conv(p: Problem) -> Parameters:
    """Fit mhe_conv like MHE-Mul, with 0 as the taps of earlier keys."""
    parameters, factors = p.fit_factors()
    taps = [factors, *[torch.zeros_like(factors)] * (TAPS - 1)]  # (n, d) each
    parameters["taps"] = torch.stack(taps, dim=1)  # (n, 3, d)
    return parameters


def fit_mhe_add(p: Problem) -> Parameters:
    """Fit MHE-Add: its query fits the heads' mean scores, a head's shift its scores at mean x."""
    heads = p.heads
    n, _, width = heads.query.shape  # width: C
    mean = p.inputs.query.mean  # (C,)
    half, inverse = root(p.inputs.query.covariance)
    mean_scores = p.scores[:, :width].mean(dim=0)  # (C, M)
    query_at_mean = heads.query @ mean + heads.query_bias  # (n, k)
    scores_at_mean = (query_at_mean.unsqueeze(1) @ heads.key).squeeze(1)  # (n, M)
    # All n heads share the mean scores, so their squared errors count n times.
    weighted = n**0.5 * half @ mean_scores  # (C, M)
    forms = torch.cat((weighted, scores_at_mean)).unsqueeze(0)  # (1, C + n, M)
    key, factors = shared_rows(forms, p.memory_roots, p.width)
    query = (inverse @ factors[0, :width] / n**0.5).T  # (d, C)
    shift = factors[0, width:] - query @ mean  # (n, d)
    value, output = shared_rows(p.outputs, p.memory_roots, p.width)
    query = pad(query, (0, 1))  # (d, C + 1)
    parameters = p.parameters(query, key, value.unsqueeze(0), output)
    # The smallest value shifts that give the output's constant; a bias adds the remainder.
    constant = p.output_constant(value.unsqueeze(0), output)  # (C,)
    joined = parameters["out_proj.weight"]  # (C, n d)
    shifts = torch.linalg.pinv(joined) @ constant  # (n d,)
    if p.bias:
        parameters["out_proj.bias"] = constant - joined @ shifts
    parameters["query_embedding"] = shift
    parameters["key_embedding"] = torch.zeros_like(shift)
    parameters["value_embedding"] = shifts.unflatten(0, (n, -1))
    return parameters


def fit_collaborative(p: Problem) -> Parameters:
    """Fit collaborative attention: its scores are a CP decomposition, exact for D = n d."""
    heads = p.heads
    query_root, query_inverse = root(p.inputs.query.second_moment)
    key_root, key_inverse = p.memory_roots
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
    """Return the symmetric square root of a covariance (C, C), and its inverse; see ``FLOOR``."""
    values, vectors = torch.linalg.eigh(matrix)
    least = float(values.max()) * FLOOR
    values = values.clamp(min=least).sqrt()
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


def shared_rows(
    forms: Tensor, roots: tuple[Tensor, Tensor], width: int
) -> tuple[Tensor, Tensor]:
    """Approximate ``forms`` (n, A, M) by factors (n, A, width) times rows (width, M) for all forms.

    Errors are weighted by the inputs whose ``roots`` are given. Returns the rows and the factors.
    """
    half, inverse = roots
    weighted = forms @ half  # (n, A, M)
    flat = weighted.flatten(0, 1)  # (n A, M)
    values, vectors = torch.linalg.eigh(flat.T @ flat)  # ascending
    values = values.clamp(min=0).flip(0)[:width]  # (d,)
    basis = vectors[:, -width:].flip(1)  # (M, d)
    missing = width - basis.size(1)
    basis = pad(basis, (0, missing))
    values = pad(values, (0, missing))
    size = values**0.25  # rows and factors each get the root of a singular value
    rows = size.unsqueeze(1) * basis.T @ inverse
    factors = weighted @ basis / size.where(size > 0, 1.0)
    return rows, factors
