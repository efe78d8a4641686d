"""A whole update, by fairseq's own Trainer: forward, loss, backward, optimizer."""

from __future__ import annotations

import os
from typing import Any

from fairseq.trainer import Trainer

from fairseq_mhe.bench import models
from fairseq_mhe.bench.clock import Stopwatch
from fairseq_mhe.bench.data import training_batches
from fairseq_mhe.bench.workload import Cell, Workload
from fairseq_mhe.models.build import build, make_task


class TrainingWorkload(Workload):
    """Cells: ``max_tokens`` of a batch, ``dtype``. A repetition is one update on each of the run's batches."""

    def prepare(self, cell: Cell) -> None:
        """A trainer with its optimizer, and the batches."""
        # fairseq saves the state where an update fails; there is nothing worth keeping here.
        words = ["--max-tokens", str(cell["max_tokens"]), "--save-dir", os.devnull]
        cfg = models.configuration(self.variant, self.settings, cell["dtype"], words)
        task = make_task(self.settings.vocabulary, config=cfg.task)
        model = build(cfg.model, task, cfg.common.seed)
        self._trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        self._weight_bytes = models.weight_bytes(model)
        self._batches = training_batches(
            task.source_dictionary, cell["max_tokens"], self.settings.batches, self.settings.seed
        )

    def repetition(self) -> dict[str, float]:
        """Seconds of all updates."""
        watch = Stopwatch(self.device)
        with watch.part("total"):
            for batch in self._batches:
                self._trainer.train_step([batch], raise_oom=True)
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """What a repetition holds (``units``: the target tokens that fairseq's words per second count)."""
        inputs = [batch["net_input"] for batch in self._batches]
        positions = sum(batch["target"].numel() for batch in self._batches)
        tokens = sum(batch["ntokens"] for batch in self._batches)
        return {
            "units": tokens,
            "source_tokens": sum(int(given["src_lengths"].sum()) for given in inputs),
            "sentences": sum(batch["nsentences"] for batch in self._batches),
            "updates": len(self._batches),
            "padding": 1 - tokens / positions,
            "weight_bytes": self._weight_bytes,
        }
