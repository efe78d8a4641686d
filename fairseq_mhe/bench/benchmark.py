"""What a benchmark is: a class that owns its options, cells, work, floor and columns."""

import functools
import gc
from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from fairseq_mhe.bench.meters import PeakMemory, gpu_work
from fairseq_mhe.common.arguments import at_least, list_of
from fairseq_mhe.common.tables import Column
from fairseq_mhe.models.build import build_on_meta

#: fairseq's own ``transformer``, biases and all, as it is shipped; ratios are relative to it.
STOCK = "stock"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: What all variants of one comparison share, plain values: shape, beam, dtype and so on.
Cell = Mapping[str, Any]
#: The least work there is: multiply-adds of matrix products, and bytes that must be read.
Floor = tuple[float, float]
#: fairseq's models know positions up to here.
LONGEST = 1024
#: Lengths of sentences with commas between them.
lengths = list_of(at_least(2, LONGEST))
_on_meta = functools.cache(build_on_meta)


class Benchmark(ABC):
    """One subcommand of ``fairseq-mhe bench``; a variant is ``STOCK`` or a kind of attention.

    Its class methods belong to the command, its others to the process that measures a variant.
    ``title``: for ``--help``; ``legend``: how its columns are to be read; ``parts``: of the time,
    for a table of their own; ``saves_memory``: whether its memory is compared too; ``settings``:
    the options, of which ``vocabulary`` is joined and shared by all embeddings.
    """

    title: ClassVar[str]
    legend: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    parts: ClassVar[tuple[str, ...]] = ()
    saves_memory: ClassVar[bool] = False

    def __init__(self, variant: str, settings: Namespace) -> None:
        self.variant, self.settings = variant, settings
        self.device = torch.device(settings.device)
        self._memory = PeakMemory(self.device)
        self._is_first = True

    @abstractmethod
    def prepare(self, cell: Cell) -> None:
        """Build the model and the inputs of a cell."""

    @abstractmethod
    def repetition(self) -> dict[str, float]:
        """Do the work once: seconds by part, ``total`` among them."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What is known besides time, after at least one repetition; plain values."""

    def begin(self, cell: Cell) -> None:
        """Make everything ready for a cell; memory counts from here.

        The work is done once before the very first cell: libraries load code and make buffers of
        their own when they are first used, which is no cell's memory.
        """
        self.prepare(cell)
        if self._is_first:
            self.repetition()
            self.prepare(cell)
        self._is_first = False
        self._memory.start()
        self._cold = True

    def turn(self) -> dict[str, float]:
        """Seconds by part; the work is done once before the first that is timed.

        On a GPU, which all processes share, what is not in use goes back to it after each turn.
        """
        if self._cold:
            self.repetition()
        seconds = self.repetition()
        self._cold = self.device.type == "cuda"
        if self._cold:
            gc.collect()
            torch.cuda.empty_cache()
        return seconds

    def result(self) -> dict[str, Any]:
        """The facts, the peak of memory, and on a GPU what it does in a repetition."""
        result = {"peak_bytes": self._memory.peak(), **self.facts()}
        return result | gpu_work(self.repetition) if self.device.type == "cuda" else result

    @classmethod
    @abstractmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Its own options, after those that all benchmarks have."""

    @classmethod
    @abstractmethod
    def cells(cls, args: Namespace) -> Iterator[Cell]:
        """What to compare, one after another."""

    @classmethod
    def variants(cls, args: Namespace) -> dict[str, "type[Benchmark]"]:
        """What is compared in each cell, and who does its work."""
        return dict.fromkeys([STOCK, *args.attention], cls)

    @classmethod
    @abstractmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any]) -> Floor:
        """The floor of one repetition by a ``model`` without memory, in bytes of one-byte numbers.

        ``facts``: what batches hold. Padding costs nothing in training, and as much as tokens
        elsewhere, where it is less than a tenth.
        """

    @classmethod
    def limits(
        cls, kind: str, settings: Namespace, cell: Cell, facts: Mapping[str, Any]
    ) -> dict[str, float]:
        """A kind's floor, and how many times as fast as MHA it would be if only that counted."""
        models = (
            _on_meta(settings.row, name, settings.vocabulary) for name in (kind, "mha")
        )
        own, mha = (cls.least_work(model, cell, facts) for model in models)
        return {
            "multiply_adds": own[0],
            "bytes": own[1] * DTYPES[cell["dtype"]].itemsize,
            "arithmetic_limit": mha[0] / own[0],
            "traffic_limit": mha[1] / own[1],
        }
