"""A whole update, by fairseq's own Trainer: forward, loss, backward, optimizer."""

import itertools
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.trainer import Trainer

from fairseq_mhe.bench import models
from fairseq_mhe.bench.benchmark import Benchmark, Cell, Floor
from fairseq_mhe.bench.meters import Stopwatch
from fairseq_mhe.bench.report import FLOOR, MEMORY, RATIO, duration, number
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
    def add_options(cls, parser: ArgumentParser) -> None:
        add = parser.add_argument
        defaults = " or ".join(f"{tokens} on {device}" for device, tokens in _TOKENS.items())
        text = f"fairseq's --max-tokens (default: {defaults})"
        add("--max-tokens", type=positive_list, metavar="N,...", help=text)
        text = "updates of a repetition (default: %(default)s)"
        add("--batches", type=positive, default=4, metavar="N", help=text)
        text = "train on the pairs of a data folder, each repetition on its next batches"
        add("--data", type=Path, metavar="DATA", help=f"{text} (default: random pairs)")
        add("--compile", action="store_true", help="compile each layer by torch.compile")

    @classmethod
    def cells(cls, args: Namespace) -> Iterator[Cell]:
        """By dtype and size of the batch."""
        sizes = args.max_tokens or [_TOKENS[args.device]]
        for dtype, tokens in itertools.product(args.dtype, sizes):
            yield {"max_tokens": tokens, "dtype": dtype}

    @classmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any]) -> Floor:
        """Bytes: the weights, to which what is read of gradients and moments is proportional."""
        sources, targets, sentences = (
            facts["source_tokens"],
            facts["units"],
            facts["sentences"],
        )
        parts = costs(
            model, round(sources / sentences), (targets / sentences + 1) / 2
        ).values()
        adds = sum(part.source * sources + part.target * targets for part in parts)
        return BACKWARD_TOO * adds, facts["updates"] * total_parameters(model)

    def prepare(self, cell: Cell) -> None:
        """A trainer with its optimizer, and the batches."""
        tokens, settings = cell["max_tokens"], self.settings
        # fairseq saves the state where an update fails; there is nothing worth keeping here.
        extra = ["--max-tokens", str(tokens), "--save-dir", os.devnull]
        cfg = models.configuration(self.variant, settings, cell["dtype"], extra)
        task, model = models.build(cfg, settings.vocabulary)
        if settings.compile:
            _compile_layers(model)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        if settings.data:
            batches = models.real_batches(
                settings.data, cfg.task, settings.vocabulary, tokens
            )
        else:
            shape = tokens, settings.batches, settings.seed
            batches = models.random_batches(task.source_dictionary, *shape)
        self._batches = itertools.cycle(batches)
        self._done: list[dict[str, Any]] = []

    def repetition(self) -> dict[str, float]:
        """Seconds of all updates."""
        batches = list(itertools.islice(self._batches, self.settings.batches))
        watch = Stopwatch(self.device)
        with watch.part("total"):
            for batch in batches:
                self.trainer.train_step([batch], raise_oom=True)
        self._done += batches
        return watch.seconds()

    def facts(self) -> dict[str, Any]:
        """What the batches of a repetition hold, on average.

        ``units``: the tokens that fairseq's words per second count.
        """
        batches, updates = self._done, self.settings.batches
        repetitions = len(batches) / updates
        tokens = sum(batch["ntokens"] for batch in batches)
        sources = sum(int(batch["net_input"]["src_lengths"].sum()) for batch in batches)
        return {
            "units": tokens / repetitions,
            "source_tokens": sources / repetitions,
            "sentences": sum(batch["nsentences"] for batch in batches) / repetitions,
            "updates": updates,
            "padding": 1 - tokens / sum(batch["target"].numel() for batch in batches),
            "weight_bytes": models.weight_bytes(self.trainer.model),
        }


def _compile_layers(model: Any) -> None:
    # A layer is one of the cases of its class's code, of which there may be 8 otherwise.
    torch._dynamo.config.recompile_limit = 128
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=True)
