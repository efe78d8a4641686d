"""Least squares of scores and outputs where no decomposition solves them: L-BFGS from a start."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fairseq_mhe.attention.fitting import Fitted, Parameters, Problem, Trained

if TYPE_CHECKING:
    from fairseq_mhe.attention.composed import ComposedQueryAttention

#: It stops where a round lowers the error by less than this share of it.
_STOP = 3e-3
#: Steps of L-BFGS that are called a round.
_STEPS = 5


def descend(new: ComposedQueryAttention, start: Parameters, trained: Trained) -> Fitted:
    """The parameters of ``new`` that a descent from ``start`` ends in; ``error``: of its scores.

    It lowers the sum of two relative square errors, of scores and of outputs, on the inputs that
    the heads read.
    """
    problem = Problem(new, trained)
    work = copy.deepcopy(new).double()
    work.load_state_dict(start)
    with torch.enable_grad():
        rounds = _lower(_Errors(problem, work), list(work.parameters()), trained)
    found = {name: value.detach() for name, value in work.state_dict().items()}
    blocks = work.blocks().detach()  # (n, C, d)
    if new.bias:  # softmax would ignore a key's bias; what is constant goes in the output's
        for name in ("k_proj.bias", "v_proj.bias", "kv_proj.bias"):
            if name in found:
                found[name] = torch.zeros_like(found[name])
        value = work.kept_weights()[1].detach().unsqueeze(0)  # (1, d, M)
        found["out_proj.bias"] = problem.lost_constant(value, blocks)
    with torch.no_grad():
        error = float(_Errors(problem, work).of_scores().sqrt())
    return Fitted(found, error, rounds)


class _Errors:
    """Relative square errors of a sublayer's scores and outputs against a problem's."""

    def __init__(self, problem: Problem, work: ComposedQueryAttention) -> None:
        self.problem, self.work = problem, work
        self.scores = problem.of_query[0] @ problem.scores @ problem.of_memory[0]  # (n, X, M)
        self.outputs = problem.outputs @ problem.of_value[0]  # (n, C, M)

    def of_scores(self) -> Tensor:
        """Of x^T A_i y, weighted by what the sublayer reads."""
        weight, bias = self.work.composed()  # (n, d, C)
        if bias is not None:
            weight = torch.cat((weight, bias.unsqueeze(2)), dim=2)  # (n, d, X)
        key = self.work.kept_weights()[0] @ self.problem.of_memory[0]  # (d, M)
        return _relative(self.problem.of_query[0] @ weight.transpose(1, 2) @ key, self.scores)

    def of_outputs(self) -> Tensor:
        """Of B_i y, likewise."""
        value = self.work.kept_weights()[1] @ self.problem.of_value[0]  # (d, M)
        return _relative(self.work.blocks() @ value, self.outputs)


def _relative(found: Tensor, wanted: Tensor) -> Tensor:
    least = torch.finfo(wanted.dtype).tiny
    return (found - wanted).square().sum() / wanted.square().sum().clamp(min=least)


def _lower(errors: _Errors, parameters: list[torch.nn.Parameter], trained: Trained) -> int:
    """Descend until it does not help any more; how many rounds that took."""
    optimizer = torch.optim.LBFGS(parameters, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        error = errors.of_scores() + errors.of_outputs()
        error.backward()
        return error

    before = float("inf")
    for rounds in range(trained.iterations):
        error = float(optimizer.step(evaluate).detach())  # as it was before
        trained.advance()
        if error > before * (1 - _STOP):
            return rounds
        before = error
    return trained.iterations
