"""What the attention sublayers of a model read: moments of their inputs over real sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fairseq_mhe.attention import Attention
from fairseq_mhe.models.build import sublayers


@dataclass(frozen=True)
class Moments:
    """``mean`` (C,) and ``covariance`` (C, C) of vectors, float64."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def unknown(cls, width: int) -> Moments:
        """Every direction alike: what to assume without data."""
        return cls(torch.zeros(width, dtype=torch.float64), torch.eye(width, dtype=torch.float64))

    @property
    def second(self) -> Tensor:
        """(C, C): the mean of x x^T."""
        return self.covariance + self.mean.outer(self.mean)

    def with_one(self) -> Tensor:
        """(C + 1, C + 1): the mean of [x, 1] [x, 1]^T, for maps with a bias."""
        vector = torch.cat((self.mean, torch.ones(1, dtype=torch.float64)))  # (C + 1,)
        return pad(self.covariance, (0, 1, 0, 1)) + vector.outer(vector)


@dataclass(frozen=True)
class Inputs:
    """What one sublayer reads: ``query`` and ``memory``."""

    query: Moments
    memory: Moments

    @classmethod
    def unknown(cls, attention: Attention) -> Inputs:
        """Inputs of which nothing is known."""
        return cls(Moments.unknown(attention.embed_dim), Moments.unknown(attention.kdim))


class _Sums:
    """Running sums of vectors and their products."""

    def __init__(self, width: int) -> None:
        self._count = 0
        self._first = torch.zeros(width, dtype=torch.float64)
        self._second = torch.zeros(width, width, dtype=torch.float64)

    def add(self, x: Tensor) -> None:
        """x: (N, C)."""
        x = x.double()
        self._count += len(x)
        self._first += x.sum(dim=0)
        self._second += x.T @ x

    def moments(self) -> Moments:
        mean = self._first / max(1, self._count)
        return Moments(mean, self._second / max(1, self._count) - mean.outer(mean))


@torch.inference_mode()
def measure_inputs(
    model: nn.Module,
    batches: Sequence[dict[str, Any]],
    pad: int,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Inputs]:
    """The inputs of every sublayer, by its name, over batches of source and (shifted) target."""
    sums: dict[str, tuple[_Sums, _Sums]] = {}
    real: dict[str, Tensor] = {}  # side -> (positions, B), true where there is a word

    def listen(
        name: str, place: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        query, memory = kwargs["query"], kwargs["key"]  # (T, B, C), (S, B, M)
        sums[name][0].add(query[real["encoder" if place == "encoder" else "decoder"]])
        sums[name][1].add(memory[real["decoder" if place == "decoder" else "encoder"]])

    with contextlib.ExitStack() as hooks:
        for name, place, module in sublayers(model):
            sums[name] = _Sums(module.embed_dim), _Sums(module.kdim)
            listener = partial(listen, name, place)
            hooks.enter_context(module.register_forward_pre_hook(listener, with_kwargs=True))
        for batch in batches:
            inputs = batch["net_input"]
            real["encoder"] = inputs["src_tokens"].ne(pad).T
            # A language model reads one text.
            real["decoder"] = inputs.get("prev_output_tokens", inputs["src_tokens"]).ne(pad).T
            model(**inputs)
            advance()
    return {
        name: Inputs(query.moments(), memory.moments()) for name, (query, memory) in sums.items()
    }
