"""A whole update, by fairseq's own Trainer: forward, loss, backward, optimizer."""

import argparse
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from fairseq.trainer import Trainer

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import Benchmark, Cell, Floor
from fairseq_mhe.bench.columns import FLOOR, MEMORY, RATIO, duration, number
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.bench.sentences import training_batches
from fairseq_mhe.common.arguments import positive, positive_list
from fairseq_mhe.models.counting import costs, total_parameters

#: Tokens of a batch unless said otherwise.
_TOKENS = {"cpu": 1024, "cuda": 4096}
#: The backward pass multiplies twice for each product of the forward pass.
BACKWARD_TOO = 3


class TrainingBenchmark(Benchmark):
    """Cells: ``max_tokens`` of a batch, ``dtype``. A repetition is one update on each batch."""

    title = "a full training step by fairseq's Trainer"
    legend = (
        "Seconds of one update on each of the batches, medians with quartiles; "
        "tokens are target tokens."
    )
    columns = (
        duration("s", "total"),
        number("tokens/s", "rate", ",.0f"),
        RATIO,
        *FLOOR,
        *MEMORY,
    )

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        defaults = " or ".join(f"{tokens} on {device}" for device, tokens in _TOKENS.items())
        text = f"fairseq's --max-tokens (default: {defaults})"
        parser.add_argument("--max-tokens", type=positive_list, metavar="N,...", help=text)
        text = "updates of a repetition (default: %(default)s)"
        parser.add_argument("--batches", type=positive, default=4, metavar="N", help=text)

    @classmethod
    def cells(cls, args: argparse.Namespace) -> Iterator[Cell]:
        """By dtype and size of the batch."""
        sizes = args.max_tokens or [_TOKENS[args.device]]
        for dtype, tokens in itertools.product(args.dtype, sizes):
            yield {"max_tokens": tokens, "dtype": dtype}

    @classmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any], width: int) -> Floor:
        """Bytes: the weights, to which what is read of gradients and moments is proportional."""
        sources, targets, sentences = facts["source_tokens"], facts["units"], facts["sentences"]
        parts = costs(model, round(sources / sentences), (targets / sentences + 1) / 2).values()
        adds = sum(part.source * sources + part.target * targets for part in parts)
        return Floor(BACKWARD_TOO * adds, facts["updates"] * total_parameters(model) * width)

    def prepare(self, cell: Cell) -> None:
        """A trainer with its optimizer, and the batches."""
        # fairseq saves the state where an update fails; there is nothing worth keeping here.
        words = ["--max-tokens", str(cell["max_tokens"]), "--save-dir", os.devnull]
        cfg = models.configuration(self.variant, self.settings, cell["dtype"], words)
        task, model = models.build(cfg, self.settings.vocabulary)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        self._weight_bytes = models.weight_bytes(model)
        count, seed = self.settings.batches, self.settings.seed
        self.batches = training_batches(task.source_dictionary, cell["max_tokens"], count, seed)

    def repetition(self) -> dict[str, float]:
        """Seconds of all updates."""
        watch = Stopwatch(self.device)
        with watch.part("total"):
            for batch in self.batches:
                self.trainer.train_step([batch], raise_oom=True)
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """What the batches hold; ``units``: the tokens that fairseq's words per second count."""
        positions = sum(batch["target"].numel() for batch in self.batches)
        tokens = sum(batch["ntokens"] for batch in self.batches)
        sources = sum(int(batch["net_input"]["src_lengths"].sum()) for batch in self.batches)
        return {
            "units": tokens,
            "source_tokens": sources,
            "sentences": sum(batch["nsentences"] for batch in self.batches),
            "updates": len(self.batches),
            "padding": 1 - tokens / positions,
            "weight_bytes": self._weight_bytes,
        }
