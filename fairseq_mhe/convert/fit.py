"""Fit each kind of attention to trained heads: the table ``FIT`` has a function for each kind.

Head i maps a query's input x and a memory y to a score x^T A_i y (softmax ignores what is the same
for every y) and an output B_i y. A fit approximates every A_i and B_i by what the kind can hold,
with the least mean square error over inputs x and y of given moments (moments.py). This needs
truncated SVDs, which are exact minimisers, or a CP decomposition (cp.py), which is not.
"""

from dataclasses import replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.plain_heads import PlainHeads
from fairseq_mhe.convert.cp import Components, decompose
from fairseq_mhe.convert.moments import Inputs
from fairseq_mhe.convert.stock_heads import separate

#: Most rounds of least squares for a CP decomposition.
ROUNDS = 200
#: Parameters of a sublayer by their names in its module, in float64.
Parameters = dict[str, Tensor]


class Root(NamedTuple):
    """The symmetric square root R (M, M) of the moments E[y y^T] of inputs y, and its inverse.

    E|B y|^2 is |B R|^2 in the Frobenius norm. So an unweighted fit of B R, times the inverse, is
    the fit of B with the least mean square error over the inputs. If a constant may correct the
    mean error, R is the root of the covariance.
    """

    matrix: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, moments: Tensor) -> Self:
        values, vectors = torch.linalg.eigh(moments)
        # The data hardly determine eigenvalues below this share of the largest one.
        least = 1e-6 * float(values.max())
        values = values.clamp(min=least).sqrt()
        return cls((vectors * values) @ vectors.T, (vectors / values) @ vectors.T)


class Problem:
    """The heads that a new sublayer has to approximate, with errors weighted by ``inputs``.

    Shapes: n trained heads with keys k wide, g key heads of the new sublayer, d wide, inputs C
    wide, memories M wide. X is C, or C + 1 if the new sublayer has biases: then each x ends in one
    more entry, always 1, and the query's weight ends in the biases.
    """

    #: The CP decomposition of the scores, if the fit of the kind makes one.
    components: Components | None = None

    def __init__(
        self, new: Attention, heads: PlainHeads, inputs: Inputs, iterations: int = ROUNDS
    ) -> None:
        """``iterations``: the most rounds of least squares for a CP decomposition."""
        self.new: Any = new
        self.heads = heads = separate(heads, new.num_heads).scaled(new.scaling)
        self.inputs = inputs
        self.iterations = iterations
        query = heads.query  # (n, k, C)
        moments = inputs.query.second_moment  # (C, C)
        if new.bias:
            biases = heads.query_bias.unsqueeze(2)  # (n, k, 1)
            query = torch.cat((query, biases), dim=2)  # (n, k, X)
            mean = pad(inputs.query.mean, (0, 1), value=1.0)  # (X,)
            covariance = pad(inputs.query.covariance, (0, 1, 0, 1))  # (X, X)
            moments = covariance + mean.outer(mean)  # (X, X)
        self.scores = query.transpose(1, 2) @ heads.key  # (n, X, M), the unscaled A_i
        self.outputs = heads.output @ heads.value  # (n, C, M), the B_i
        # (C,): what value biases and the output's bias add to the output, whatever the input.
        values = heads.output @ heads.value_bias.unsqueeze(2)  # (n, C, 1)
        self.constant = values.sum(dim=0).squeeze(1) + heads.output_bias
        self.query_root = Root.of(moments)  # (X, X)
        self.memory_root = Root.of(inputs.memory.covariance)  # softmax ignores the mean
        self.value_root = self.memory_root  # the output's bias corrects the mean
        if not new.bias:
            self.value_root = Root.of(inputs.memory.second_moment)

    def parameters(
        self, query: Tensor, key: Tensor, value: Tensor, output: Tensor
    ) -> Parameters:
        """Name the parameters: query (rows, X), key (rows, M), value (g, d, M), output (n, C, d).

        Softmax ignores key biases. The output's bias does the work of the value biases.
        """
        width = self.heads.query.size(2)  # C
        values = value.flatten(0, 1)  # (g d, M)
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
        if self.new.bias:
            return parameters
        return {name: x for name, x in parameters.items() if "bias" not in name}

    def shared_value(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Fit ``outputs`` (n, C, M) by each head's output (n, C, d) and one value (1, d, M)."""
        output, value = low_rank(outputs, self.value_root, self.new.head_dim)
        return output, value.unsqueeze(0)

    def output_constant(self, value: Tensor, output: Tensor) -> Tensor:
        """Return the output's bias (C,): the heads' constant and the fit's error at mean memory."""
        group = len(self.outputs) // len(value)
        repeated = value.repeat_interleave(group, dim=0)  # (n, d, M)
        missing = (self.outputs - output @ repeated).sum(dim=0) @ self.inputs.memory.mean
        return missing + self.constant

    def decomposed(self, scores: Tensor, query_root: Root, dimensions: int) -> Components:
        """Fit ``scores`` (n, A, M) by so many shared components, and keep them with their error."""
        weighted = query_root.matrix @ scores @ self.memory_root.matrix
        rank = self.heads.key.size(1)  # k
        components = decompose(weighted, dimensions, rank, self.iterations)
        self.components = replace(
            components,
            query=components.query @ query_root.inverse,  # (D, A)
            key=components.key @ self.memory_root.inverse,  # (D, M)
        )
        return self.components


def fit_grouped(p: Problem) -> Parameters:
    """Fit gqa or mqa: the heads of a group share a key and a value."""
    keys, queries, values, outputs = [], [], [], []
    groups = p.new.kv_heads
    grouped = zip(p.scores.chunk(groups), p.outputs.chunk(groups), strict=True)
    for group_scores, group_outputs in grouped:
        weighted = p.query_root.matrix @ group_scores  # (n / g, X, M)
        query, key = low_rank(weighted, p.memory_root, p.new.head_dim)
        queries.append(p.query_root.inverse @ query)  # (n / g, X, d)
        keys.append(key)
        output, value = p.shared_value(group_outputs)
        values.append(value)
        outputs.append(output)
    query = torch.cat(queries).transpose(1, 2).flatten(0, 1)  # (n d, X)
    key = torch.cat(keys)  # (g d, M)
    value = torch.cat(values)  # (g, d, M)
    return p.parameters(query, key, value, torch.cat(outputs))


def fit_mhe_mul(p: Problem) -> Parameters:
    """Fit MHE-Mul, whose scores are a CP decomposition; W_O includes the factors of the values."""
    components = p.decomposed(p.scores, p.query_root, p.new.head_dim)
    # The mean square of a channel's factors becomes 1, near that of a new model.
    size = components.mixing.square().mean(dim=0).sqrt()  # (d,)
    factors = torch.where(size > 0, components.mixing / size, 1.0)  # (n, d)
    # The query and the key each take the root of the size.
    share = size.sqrt().unsqueeze(1)  # (d, 1)
    output, value = p.shared_value(p.outputs)
    query, key = share * components.query, share * components.key  # (d, X), (d, M)
    parameters = p.parameters(query, key, value, output)
    offset = p.new.head_embedding_offset
    # e^Q holds the whole factor. Were a factor 0 split in two, it would get no gradient.
    parameters["query_embedding"] = factors - offset
    for name in ("key_embedding", "value_embedding"):
        parameters[name] = torch.full_like(factors, 1 - offset)  # a factor of 1
    return parameters


def fit_collaborative(p: Problem) -> Parameters:
    """Fit collaborative attention: its scores are a CP decomposition, exact for D = n d."""
    heads = p.heads
    scores = p.scores[:, : heads.query.size(2)]  # (n, C, M), without biases
    query_root = Root.of(p.inputs.query.second_moment)
    components = p.decomposed(scores, query_root, p.new.collaborative_dim)
    parameters = {
        "q_proj.weight": components.query,  # (D, C)
        "k_proj.weight": components.key,  # (D, M)
        "mixing": components.mixing,  # (n, D)
        "v_proj.weight": heads.value.flatten(0, 1),
        "out_proj.weight": heads.output.transpose(0, 1).flatten(1),
    }
    if p.new.bias:
        content = heads.scale * (heads.query_bias.unsqueeze(1) @ heads.key)  # (n, 1, M)
        parameters |= {
            "v_proj.bias": heads.value_bias.flatten(),
            "out_proj.bias": heads.output_bias,
            "content_proj.weight": content.squeeze(1),
        }
    return parameters


#: Kind -> the function that fits it; these are the kinds of ``convert --to``.
FIT = {
    "mhe_mul": fit_mhe_mul,
    "mqa": fit_grouped,
    "gqa": fit_grouped,
    "collaborative": fit_collaborative,
}


def low_rank(matrices: Tensor, root: Root, rank: int) -> tuple[Tensor, Tensor]:
    """Approximate each of ``matrices`` (n, A, M) by a product with a factor that all share.

    Returns each one's own factor (n, A, rank) and the shared factor (rank, M). They have the least
    mean square error over the inputs of ``root``.
    """
    weighted = matrices @ root.matrix  # (n, A, M)
    stacked = weighted.flatten(0, 1)  # (n A, M)
    # Eigenvectors of this (M, M) are the right singular vectors of ``stacked``: faster than an SVD.
    squares, vectors = torch.linalg.eigh(stacked.T @ stacked)  # ascending
    squares = squares.clamp(min=0).flip(0)[:rank]  # (rank,), of the singular values
    basis = vectors.flip(1)[:, :rank]  # (M, rank)
    missing = (0, rank - len(squares))  # if rank > M
    squares, basis = pad(squares, missing), pad(basis, missing)
    size = squares**0.25  # each factor takes the root of a singular value
    shared = size.unsqueeze(1) * basis.T @ root.inverse
    own = weighted @ basis / size.where(size > 0, 1.0)
    return own, shared
