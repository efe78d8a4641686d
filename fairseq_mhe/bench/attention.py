"""Benchmarks of one attention sublayer, called with the arguments that its model passes to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from fairseq import utils
from torch import Tensor

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, Benchmark, Options, Values, combinations
from fairseq_mhe.bench.meters import Seconds, Stopwatch
from fairseq_mhe.common.arguments import (
    at_least,
    integer,
    list_of,
    number,
    option,
    some_of,
)

PLACES = ("encoder", "decoder", "cross", "cross_last")
#: More positions than fairseq's translation models have by default (1,024).
_LONGEST = 4096
_LENGTHS = list_of(at_least(2, _LONGEST))
#: Two decoder layers, because stock fairseq's last layer also returns attention weights.
_MODEL = (
    "--encoder-layers 1 --decoder-layers 2 "
    f"--max-source-positions {_LONGEST} --max-target-positions {_LONGEST}"
).split()


@dataclass(frozen=True, kw_only=True)
class AttentionOptions(Options):
    """The options of ``fairseq-mhe bench attention``."""

    vocab_size: int = 64  # does not affect a sublayer
    places: Sequence[str] = option(
        PLACES, "sublayers, or all", type=some_of(PLACES), metavar="PLACE,..."
    )
    lengths: Sequence[int] = option(
        (32, 64, 128, 256, 512, 1024),
        "tokens of each side",
        type=_LENGTHS,
        metavar="N,...",
    )
    tokens: int | None = integer(None, "tokens of a batch (default: 2048, GPU 16384)")
    seconds: float = option(
        0.2, "seconds of calls in a repetition", type=number, metavar="S"
    )


class AttentionBenchmark(Benchmark):
    """A cell has ``place``, ``length`` of source and target, ``batch`` in sentences, ``dtype``."""

    title = "one attention sublayer, forward and backward"
    legend = "Milliseconds of one call, medians with quartiles."
    columns: ClassVar = {
        "forward, ms": "forward",
        "backward, ms": "backward",
        "in all, ms": "total",
    }
    options = AttentionOptions

    @classmethod
    def cells(cls, options: AttentionOptions) -> Iterator[Values]:
        """Yield cells with about the same number of tokens in each batch, whatever the length."""
        tokens = options.tokens or (16384 if options.device == "cuda" else 2048)
        for cell in combinations(
            place=options.places, length=options.lengths, dtype=options.dtype
        ):
            yield {**cell, "batch": max(1, tokens // cell["length"])}

    def prepare(self, cell: Values) -> None:
        """Record the arguments of the model's call of the sublayer, for the repetitions."""
        dtype = cell["dtype"]
        settings = self.settings
        _, task, model = models.build(self.variant, settings, dtype, _MODEL)
        model.to(settings.device, DTYPES[dtype])
        pairs = models.translation_batch(
            task.source_dictionary,
            cell["batch"],
            cell["length"],
            settings.seed,
            with_target=True,
        )
        batch = utils.apply_to_sample(lambda x: x.to(settings.device), pairs["net_input"])
        place = cell["place"]
        layers = model.encoder.layers if place == "encoder" else model.decoder.layers
        layer = layers[0] if place == "cross" else layers[-1]
        self._layer = layer.encoder_attn if place.startswith("cross") else layer.self_attn
        # fairseq's layers call attention with keywords only.
        calls: list[Values] = []
        recording = self._layer.register_forward_pre_hook(
            lambda _module, _args, kwargs: calls.append(kwargs), with_kwargs=True
        )
        with recording, torch.no_grad():
            model.train()(**batch)
        (self._inputs,) = calls
        # The inputs become leaves with gradients: one tensor that is passed twice stays one.
        leaves: dict[Tensor, Tensor] = {}
        for name in ("query", "key", "value"):
            tensor = self._inputs[name]
            leaf = leaves.setdefault(tensor, tensor.detach().requires_grad_())
            self._inputs[name] = leaf
        self._leaves = [*leaves.values(), *self._layer.parameters()]
        # The output has the shape of the query.
        self._grad_output = torch.randn_like(self._inputs["query"])  # (T, B, C)
        self._measure(1)  # a warm-up
        seconds = sum(self._measure(1).values())
        self._calls = max(1, round(settings.seconds / seconds))

    def repetition(self) -> Seconds:
        seconds = self._measure(self._calls)
        parts = {part: value / self._calls for part, value in seconds.items()}
        return {"total": sum(parts.values()), **parts}

    def facts(self) -> Values:
        return {"weight_bytes": models.weight_bytes(self._layer)}

    def _measure(self, calls: int) -> Seconds:
        watch = Stopwatch(self.on_gpu)
        for _ in range(calls):
            with watch.part("forward"):
                output = self._layer(**self._inputs)[0]  # (T, B, C)
            with watch.part("backward"):
                grad_output = self._grad_output
                torch.autograd.grad(output, self._leaves, grad_output, allow_unused=True)
            del output  # otherwise the peak memory of the next call would include it
        return watch.seconds()
