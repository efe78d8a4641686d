"""Moments of the inputs that the attention sublayers of a model get on real sentences."""

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_mhe.models.options import sublayers


class Moments:
    """Float64 mean (C,) and covariance (C, C) of the added vectors; of none: 0 and the identity."""

    def __init__(self, width: int) -> None:
        self._count = 0
        self._sum = torch.zeros(width, dtype=torch.float64)
        self._products = torch.zeros(width, width, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """Add the N vectors ``x`` (N, C)."""
        x = x.double()
        self._count += len(x)
        self._sum += x.sum(dim=0)
        self._products += x.T @ x

    @property
    def mean(self) -> Tensor:
        """(C,)."""
        return self._sum / max(1, self._count)

    @property
    def covariance(self) -> Tensor:
        """(C, C)."""
        if not self._count:
            return torch.eye(len(self._sum), dtype=torch.float64)
        return self._products / self._count - self.mean.outer(self.mean)

    @property
    def second_moment(self) -> Tensor:
        """(C, C): the mean of x x^T."""
        return self.covariance + self.mean.outer(self.mean)


class Inputs(NamedTuple):
    """Moments of the two inputs of a sublayer: the queries' input, and the memory."""

    query: Moments
    memory: Moments


@torch.inference_mode()
def measure_inputs(
    model: nn.Module, batches: Iterable[dict[str, Any]], pad: int
) -> dict[str, Inputs]:
    """Measure the inputs of each sublayer, by its name, at all tokens that are no padding."""
    measured: dict[str, Inputs] = {}
    real: dict[str, Tensor] = {}  # side -> (positions, B), False at padding

    def record(inputs: Inputs, place: str, _: nn.Module, args: Any, kwargs: Any) -> None:
        query, memory = kwargs["query"], kwargs["key"]  # (T, B, C), (S, B, M)
        query_side = "encoder" if place == "encoder" else "decoder"
        memory_side = "decoder" if place == "decoder" else "encoder"
        inputs.query.add(query[real[query_side]])
        inputs.memory.add(memory[real[memory_side]])

    with contextlib.ExitStack() as hooks:
        for name, place, module in sublayers(model):
            measured[name] = Inputs(Moments(module.embed_dim), Moments(module.kdim))
            hook = partial(record, measured[name], place)
            handle = module.register_forward_pre_hook(hook, with_kwargs=True)
            hooks.enter_context(handle)
        for batch in batches:
            inputs = batch["net_input"]
            real["encoder"] = inputs["src_tokens"].ne(pad).T
            real["decoder"] = inputs["prev_output_tokens"].ne(pad).T
            model(**inputs)
    return measured
