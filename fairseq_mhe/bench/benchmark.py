"""The base class of benchmarks, which have options, cells to measure, work and columns."""

import gc
import itertools
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch

from fairseq_mhe.bench.meters import Seconds, gpu_work, peak_memory
from fairseq_mhe.common.cpu import keep_freed_memory

#: fairseq's own ``transformer`` as it is shipped, with biases; ratios are relative to it.
STOCK = "stock"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Plain values by name: a cell (such as beam and dtype), which variants share, or measurements.
Values = dict[str, Any]


def combinations(**lists: Iterable[Any]) -> Iterator[Values]:
    """Yield a cell for each combination of the lists' values."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


class Benchmark(ABC):
    """One subcommand of ``fairseq-mhe bench``; a variant is ``STOCK`` or a kind of attention.

    The command calls class methods; a process for each variant makes an instance and calls it.
    ``options``: tuples of name, help, type, default and metavar; ``flags``: names with their help;
    ``columns``: headings with the name of a fact or of a part of the time.
    """

    title: ClassVar[str]
    legend: ClassVar[str]
    columns: ClassVar[dict[str, str]]
    options: ClassVar[tuple[tuple[Any, ...], ...]]
    flags: ClassVar[dict[str, str]] = {}
    defaults: ClassVar[Values] = {}
    saves_memory: ClassVar[bool] = False

    def __init__(self, variant: str, settings: Namespace) -> None:
        self.variant = variant
        self.settings = settings
        self.on_gpu = settings.device == "cuda"
        self._is_first_cell = True

    @classmethod
    @abstractmethod
    def cells(cls, args: Namespace) -> Iterator[Values]:
        """Yield the cells in the order of their measurement."""

    @classmethod
    def variants(cls, args: Namespace) -> dict[str, "type[Benchmark]"]:
        """Return the variants to compare in each cell, and the class that measures each."""
        return dict.fromkeys([STOCK, *args.attention], cls)

    @abstractmethod
    def prepare(self, cell: Values) -> None:
        """Build the model and the inputs of a cell."""

    @abstractmethod
    def repetition(self) -> Seconds:
        """Do the work once; return seconds by part, including ``total``."""

    @abstractmethod
    def facts(self) -> Values:
        """Return results other than time, as plain values; called after a repetition."""

    def begin(self, cell: Values) -> None:
        """Prepare a cell, and measure the peak memory of a first repetition."""
        gc.collect()
        self.prepare(cell)
        if self._is_first_cell:
            self.repetition()  # libraries allocate their buffers, which are no part of the peak
            self.prepare(cell)
        self._is_first_cell = False
        # Between the profiler's records, freed blocks that stay would grow to 20 GB.
        is_tuned = self.variant != STOCK and keep_freed_memory(2**20)
        self._peak = peak_memory(self.repetition, self.on_gpu)
        if is_tuned:
            keep_freed_memory()

    def turn(self) -> Seconds:
        """Measure the time of one repetition."""
        if not self.on_gpu:
            return self.repetition()
        self.repetition()  # allocates the memory that the last turn released
        seconds = self.repetition()
        gc.collect()
        torch.cuda.empty_cache()  # releases it again, because all processes share the GPU
        return seconds

    def result(self) -> Values:
        """Return the facts, the peak memory, and what a GPU does in a repetition."""
        work = gpu_work(self.repetition) if self.on_gpu else {}
        return {"peak_bytes": self._peak, **self.facts(), **work}
