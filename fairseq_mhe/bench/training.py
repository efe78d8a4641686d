"""Benchmark of a whole update by fairseq's Trainer: forward, loss, backward, optimizer."""

import itertools
import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from fairseq.trainer import Trainer

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import STOCK, Benchmark, Values, combinations
from fairseq_mhe.bench.meters import Seconds, Stopwatch
from fairseq_mhe.common.arguments import at_least, list_of, positive
from fairseq_mhe.common.errors import UserError

_MAX_TOKENS = "tokens of a batch, at least 64 (default: 1024, GPU 4096)"


class TrainingBenchmark(Benchmark):
    """A cell has ``max_tokens`` of a batch and ``dtype``; a repetition updates on each batch."""

    title = "a full training step by fairseq's Trainer"
    legend = (
        "Seconds of an update on each batch, medians with quartiles; target tokens. "
        "The peak is without what CUDA graphs hold."
    )
    columns: ClassVar = {"s": "total", "tokens/s": "units"}
    options: ClassVar = (
        ("--max-tokens", _MAX_TOKENS, list_of(at_least(64)), None, "N,..."),
        ("--batches", "updates of a repetition", positive, 4, "N"),
        ("--data", "folder of real pairs (default: random pairs)", Path, None, "DATA"),
    )
    flags: ClassVar = {"--cuda-graphs": "train our models with CUDA graphs, on a GPU"}

    @classmethod
    def cells(cls, args: Namespace) -> Iterator[Values]:
        if args.cuda_graphs and args.device == "cpu":
            raise UserError("--cuda-graphs is for --device cuda: leave it out on a CPU")
        default = [4096 if args.device == "cuda" else 1024]
        return combinations(max_tokens=args.max_tokens or default, dtype=args.dtype)

    def prepare(self, cell: Values) -> None:
        tokens = cell["max_tokens"]
        settings = self.settings
        # When an update fails, fairseq would save a checkpoint; below /dev/null it cannot.
        extra = ["--max-tokens", str(tokens), "--save-dir", os.devnull]
        uses_graphs = settings.cuda_graphs and self.variant != STOCK
        if uses_graphs:
            extra.append("--cuda-graphs")
        cfg, task, model = models.build(self.variant, settings, cell["dtype"], extra)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        if settings.data:
            words = settings.vocab_size
            batches = models.real_batches(settings.data, words, tokens)
        else:
            batches = models.random_batches(
                task.source_dictionary, tokens, settings.batches, settings.seed
            )
        if uses_graphs:
            # The first batch of a shape is trained without a graph; the second records the graph.
            measured = settings.batches * settings.repetitions
            batches = list(itertools.islice(itertools.cycle(batches), measured))
            for batch in [*batches, *batches]:
                self.trainer.train_step([batch], raise_oom=True)
        self._batches = itertools.cycle(batches)
        self._done: list[Values] = []

    def repetition(self) -> Seconds:
        batches = list(itertools.islice(self._batches, self.settings.batches))
        watch = Stopwatch(self.on_gpu)
        with watch.part("total"):
            for batch in batches:
                self.trainer.train_step([batch], raise_oom=True)
        self._done += batches
        return watch.seconds()

    def facts(self) -> Values:
        """Return the mean target tokens of a repetition, as fairseq counts words per second."""
        repetitions = len(self._done) / self.settings.batches
        tokens = sum(batch["ntokens"] for batch in self._done) / repetitions
        return {"units": tokens, "weight_bytes": models.weight_bytes(self.trainer.model)}
