"""Benchmark of a whole update by fairseq's Trainer: forward, loss, backward, optimizer."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fairseq.trainer import Trainer

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import DTYPES, Benchmark, Options, Values, combinations
from fairseq_mhe.bench.meters import Seconds, Stopwatch, product_speed
from fairseq_mhe.bench.variants import Variant, variants_without_graphs
from fairseq_mhe.common.arguments import at_least, integer, list_of, option


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Options):
    """The options of ``fairseq-mhe bench training``."""

    max_tokens: Sequence[int] = option(
        (),
        "tokens of a batch, at least 64 (default: 1024, GPU 4096)",
        type=list_of(at_least(64)),
        metavar="N,...",
    )
    batches: int = integer(4, "updates of a repetition, each on another batch")
    first_epoch: int | None = integer(
        None, "updates of the first epoch, which is timed once (default: as --batches)"
    )
    data: Path | None = option(
        None, "folder of real pairs (default: random pairs)", type=Path, metavar="DATA"
    )
    without_graphs: bool = option(False, "also time kinds without CUDA graphs, on a GPU")


class TrainingBenchmark(Benchmark):
    """A cell has ``max_tokens`` of a batch and ``dtype``; a repetition updates on each batch.

    All variants get the same batches in the same order. The first epoch begins with a new model:
    all shapes are new, and CUDA graphs are recorded. Its first ``batches`` are then trained on
    again, once to warm up and once in each repetition: shapes are known.
    """

    title = "a full training step by fairseq's Trainer"
    legend = (
        "Seconds of an update on each batch, medians with quartiles; target tokens. First epoch: "
        "tokens/s of the first updates, with the recording of CUDA graphs. Of the limit: share of "
        "the operations/s that one large product reaches, without padding. The peak leaves out the "
        "memory of CUDA graphs."
    )
    columns: ClassVar = {"s": "total", "tokens/s": "units", "first epoch": "first_units"}
    columns |= {"of the limit": "operations"}
    options = TrainingOptions

    @classmethod
    def cells(cls, options: TrainingOptions) -> Iterator[Values]:
        default = [4096 if options.device == "cuda" else 1024]
        tokens = options.max_tokens or default
        return combinations(max_tokens=tokens, dtype=options.dtype)

    @classmethod
    def variants(cls, options: TrainingOptions) -> list[Variant]:
        variants = super().variants(options)
        if options.without_graphs:
            variants += variants_without_graphs(options.device, options.kinds)
        return variants

    def prepare(self, cell: Values) -> None:
        self._dtype = cell["dtype"]
        # When an update fails, fairseq would save a checkpoint; below /dev/null it cannot.
        extra = ["--max-tokens", str(cell["max_tokens"]), "--save-dir", os.devnull]
        if self.on_gpu and self.variant.kind and self.variant.has_graphs:
            extra.append("--cuda-graphs")
        cfg, task, model = models.build(self.variant, self.settings, self._dtype, extra)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        count = max(self.settings.batches, self.settings.first_epoch or 0)
        self._epoch = self._first_batches(task, cell["max_tokens"], count)
        self._batches = self._epoch[: self.settings.batches]

    def _first_batches(self, task: Any, tokens: int, count: int) -> list[Values]:
        settings = self.settings
        if settings.data:
            words = settings.vocab_size
            return models.real_batches(settings.data, words, tokens, count)
        dictionary = task.source_dictionary
        return models.random_batches(dictionary, tokens, count, settings.seed)

    def first_pass(self) -> Seconds:
        return self._train(self._epoch)

    def repetition(self) -> Seconds:
        return self._train(self._batches)

    def _train(self, batches: Iterable[Values]) -> Seconds:
        watch = Stopwatch(self.on_gpu)
        with watch.part("total"):
            for batch in batches:
                self.trainer.train_step([batch], raise_oom=True)
        return watch.seconds()

    def facts(self) -> Values:
        """Return target tokens, as fairseq counts words per second, and operations."""
        settings = self.settings
        kind = self.variant.kind or "mha"  # stock has the same products
        operations = models.training_operations(settings, kind, self._batches)
        device = "cuda" if self.on_gpu else "cpu"
        return {
            "units": sum(batch["ntokens"] for batch in self._batches),
            "first_units": sum(batch["ntokens"] for batch in self._epoch),
            "weight_bytes": models.weight_bytes(self.trainer.model),
            "operations": operations,
            "limit": product_speed(device, DTYPES[self._dtype]),
        }
