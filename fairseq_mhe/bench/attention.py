"""One attention sublayer, called with exactly what the model around it gives it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_mhe.bench import models
from fairseq_mhe.bench.clock import Stopwatch
from fairseq_mhe.bench.data import parallel_batch
from fairseq_mhe.bench.kernels import attention_kernel
from fairseq_mhe.bench.settings import DTYPES
from fairseq_mhe.bench.workload import Cell, Workload
from fairseq_mhe.models.build import build, make_task

#: Places measured in training, forward and backward.
TRAINING_PLACES = ("encoder", "decoder", "cross", "cross_last")
#: Places measured in generation, one token after another, where a sublayer is called once a step;
#: and their sublayers.
STEP_PLACES = {"decoder_steps": "decoder", "cross_steps": "cross"}
PLACES = (*TRAINING_PLACES, *STEP_PLACES)
#: One encoder layer, and two decoder layers because stock fairseq treats the last one in another
#: way.
_LAYERS = ("--encoder-layers", "1", "--decoder-layers", "2")
#: A sublayer never sees the vocabulary.
_VOCABULARY = 64
_INPUTS = ("query", "key", "value")
_MOST_CALLS = 10_000


class AttentionWorkload(Workload):
    """Cells: ``place`` (of ``PLACES``), ``length`` of source and target, ``batch`` (sentences), ``dtype``."""

    def prepare(self, cell: Cell) -> None:
        """Record what the model calls the sublayer with, to call it with the same again and again."""
        cfg = models.configuration(self.variant, self.settings, cell["dtype"], _LAYERS)
        task = make_task(_VOCABULARY, config=cfg.task)
        model: Any = build(cfg.model, task, cfg.common.seed).to(self.device, DTYPES[cell["dtype"]])
        batch = parallel_batch(
            task.source_dictionary, cell["batch"], cell["length"], self.settings.seed
        )
        batch = {name: tensor.to(self.device) for name, tensor in batch["net_input"].items()}
        place: str = cell["place"]
        self._steps = place in STEP_PLACES
        self._layer = models.attention_sublayers(model)[STEP_PLACES.get(place, place)]
        with recorded_calls(self._layer) as calls, torch.no_grad():
            if self._steps:
                model.prepare_for_inference_(cfg)
                _decode(model, batch)
            else:
                model.train()(**batch)
        self._calls = calls if self._steps else [_as_leaves(calls[0])]
        self._weights = list(self._layer.parameters())
        self._gradient = torch.randn_like(
            self._calls[0]["query"]
        )  # the output is as large as the query
        self._times = 0

    def repetition(self) -> dict[str, float]:
        """Seconds of one call (of one step): ``total`` and, in training, ``forward`` and ``backward``."""
        if not self._times:
            self._measure(1)
            once = sum(self._measure(1).values())
            self._times = max(1, min(_MOST_CALLS, math.ceil(self.settings.seconds / once)))
        parts = {
            part: seconds / self._times / len(self._calls)
            for part, seconds in self._measure(self._times).items()
        }
        return {"total": sum(parts.values()), **parts}

    def facts(self) -> dict[str, Any]:
        """The kernel that ran, and the weights' bytes."""
        kernel = attention_kernel(
            lambda: self._layer(
                **self._calls[0], **({"incremental_state": {}} if self._steps else {})
            )
        )
        return {"kernel": kernel, "weight_bytes": models.weight_bytes(self._layer)}

    def _measure(self, times: int) -> dict[str, float]:
        watch = Stopwatch(self.device)
        for _ in range(times):
            self._generate(watch) if self._steps else self._train(watch)
        return watch.seconds()

    def _train(self, watch: Stopwatch) -> None:
        inputs = self._calls[0]
        with watch.part("forward"):
            output = self._layer(**inputs)[0]
        leaves = {id(inputs[name]): inputs[name] for name in _INPUTS}.values()
        with watch.part("backward"):
            torch.autograd.grad(
                output, [*leaves, *self._weights], self._gradient, allow_unused=True
            )

    @torch.no_grad()
    def _generate(self, watch: Stopwatch) -> None:
        state: dict[str, Any] = {}
        with watch.part("steps"):
            for inputs in self._calls:
                self._layer(**inputs, incremental_state=state)


@contextlib.contextmanager
def recorded_calls(layer: nn.Module) -> Iterator[list[dict[str, Any]]]:
    """The keyword arguments of every call of ``layer`` inside the block, but for the incremental state."""
    calls: list[dict[str, Any]] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args:
            raise TypeError("fairseq's layers call attention with keywords only")
        calls.append({name: value for name, value in kwargs.items() if name != "incremental_state"})

    handle = layer.register_forward_pre_hook(record, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _as_leaves(call: dict[str, Any]) -> dict[str, Any]:
    """The call with inputs that want a gradient; inputs that were one tensor stay one."""
    leaves = {id(call[name]): call[name].detach().requires_grad_() for name in _INPUTS}
    return {**call, **{name: leaves[id(call[name])] for name in _INPUTS}}


def _decode(model: Any, batch: dict[str, Tensor]) -> None:
    """Every step of decoding a target that is given."""
    memory = model.encoder.forward_torchscript(batch)
    target = batch["prev_output_tokens"]
    target = target[:1].expand_as(
        target
    )  # hypotheses are never padded; the first sentence is the longest
    state: dict[str, Any] = {}
    for step in range(target.size(1)):
        model.decoder(target[:, : step + 1], encoder_out=memory, incremental_state=state)
