"""What a benchmark is: a class that owns its options, cells, work and columns."""

import gc
import itertools
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch

from fairseq_mhe.bench.meters import Seconds, gpu_work, peak_memory

#: fairseq's own ``transformer``, biases and all, as it is shipped; ratios are relative to it.
STOCK = "stock"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Plain values by name: a cell, which all variants of one comparison share (shape, beam, dtype), or
#: what was measured.
Values = dict[str, Any]


def combinations(**lists: Iterable[Any]) -> Iterator[Values]:
    """Cells: by name one value of each list."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


class Benchmark(ABC):
    """One subcommand of ``fairseq-mhe bench``; a variant is ``STOCK`` or a kind of attention.

    Its class methods belong to the command, its others to the process that measures a variant.
    ``options``: name, help, type, default, metavar of each; ``flags``: help by name; ``columns``:
    by heading the name of a fact or of a part of the time.
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
        self._is_first = True

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
        """Make everything ready for a cell, and do its work once, which shows its memory."""
        gc.collect()
        self.prepare(cell)
        if self._is_first:  # libraries make buffers, which are no cell's memory
            self.repetition()
            self.prepare(cell)
        self._is_first = False
        self._peak = peak_memory(self.repetition, self.on_gpu)

    def turn(self) -> Seconds:
        if not self.on_gpu:
            return self.repetition()
        self.repetition()  # once more, as the last turn gave its memory back
        seconds = self.repetition()
        gc.collect()
        torch.cuda.empty_cache()  # all processes share the GPU
        return seconds

    def result(self) -> Values:
        """The facts, the peak of memory, and on a GPU what it does in a repetition."""
        work = gpu_work(self.repetition) if self.on_gpu else {}
        return {"peak_bytes": self._peak, **self.facts(), **work}
