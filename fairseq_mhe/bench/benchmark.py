"""What a benchmark is: a class that owns its options, cells, work and columns."""

import gc
from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from fairseq_mhe.bench.meters import PeakMemory, Seconds, gpu_work

#: fairseq's own ``transformer``, biases and all, as it is shipped; ratios are relative to it.
STOCK = "stock"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Plain values by name: a cell, which all variants of one comparison share (shape, beam, dtype), or
#: what was measured.
Values = dict[str, Any]


def add_option(
    parser: ArgumentParser, name: str, kind: Any, default: Any, metavar: str, text: str
) -> None:
    """An option whose help ends in its default."""
    words = {"type": kind, "default": default, "metavar": metavar}
    parser.add_argument(name, **words, help=f"{text} (default: %(default)s)")


class Benchmark(ABC):
    """One subcommand of ``fairseq-mhe bench``; a variant is ``STOCK`` or a kind of attention.

    Its class methods belong to the command, its others to the process that measures a variant.
    ``columns``: by heading the name of a fact or of a part of the time.
    """

    title: ClassVar[str]
    legend: ClassVar[str]
    columns: ClassVar[dict[str, str]]
    saves_memory: ClassVar[bool] = False

    def __init__(self, variant: str, settings: Namespace) -> None:
        self.variant, self.settings = variant, settings
        self.on_gpu = settings.device == "cuda"
        self._memory = PeakMemory(self.on_gpu)
        self._is_first = True

    @classmethod
    @abstractmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Those beside the ones that all benchmarks have."""

    @classmethod
    @abstractmethod
    def cells(cls, args: Namespace) -> Iterator[Values]:
        """What to compare, one after another."""

    @classmethod
    def variants(cls, args: Namespace) -> dict[str, "type[Benchmark]"]:
        """What is compared in each cell, and who does its work."""
        return dict.fromkeys([STOCK, *args.attention], cls)

    @abstractmethod
    def prepare(self, cell: Values) -> None:
        """Build the model and the inputs of a cell."""

    @abstractmethod
    def repetition(self) -> Seconds:
        """Do the work once: seconds by part, ``total`` among them."""

    @abstractmethod
    def facts(self) -> Values:
        """What is known besides time, after at least one repetition; plain values."""

    def begin(self, cell: Values) -> None:
        """Make everything ready for a cell; memory counts from here."""
        self.prepare(cell)
        if (
            self._is_first
        ):  # libraries load code and make buffers, which are no cell's memory
            self.repetition()
            self.prepare(cell)
        self._is_first = False
        self._memory.start()
        self._cold = True

    def turn(self) -> Seconds:
        """Seconds by part; the work is done once before the first that is timed."""
        if self._cold:
            self.repetition()
        seconds = self.repetition()
        self._cold = self.on_gpu
        if self.on_gpu:  # which all processes share: what is not in use goes back to it
            gc.collect()
            torch.cuda.empty_cache()
        return seconds

    def result(self) -> Values:
        """The facts, the peak of memory, and on a GPU what it does in a repetition."""
        work = gpu_work(self.repetition) if self.on_gpu else {}
        return {"peak_bytes": self._memory.peak(), **self.facts(), **work}
