"""The base class of benchmarks, which have options, cells to measure, work and columns."""

import gc
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.bench.meters import (
    Seconds,
    longest_operators,
    peak_memory,
    waiting_places,
)
from fairseq_mhe.bench.variants import Variant, kind_variants, stock_variants
from fairseq_mhe.common.arguments import integer, option, seed, some_of
from fairseq_mhe.common.cpu import keep_freed_memory
from fairseq_mhe.common.system import cores, omp_threads
from fairseq_mhe.models.architectures import VOCABULARY

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: How often each variant does its work before the clock starts. A CUDA graph is recorded when a
#: shape comes for the second time.
WARM_UPS = 2
#: Sizes in a cell that make its work small: by this work libraries start, which takes seconds.
_SMALL = {"max_tokens": 64, "length": 4, "sentences": 1, "batch": 1}
#: While the profiler counts memory, larger blocks that stay would grow to 20 GB.
_LARGEST_KEPT = 2**20
#: Plain values by name: a cell (such as beam and dtype), which variants share, or measurements.
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every benchmark has."""

    row: str = option("base", "row with the sizes of the models", metavar="ROW")
    attention: Sequence[str] = option(
        (), "kinds of attention (default: all)", type=some_of(KINDS), metavar="KIND,..."
    )
    device: str = option(
        "",
        "device (default: cuda if torch sees a GPU, else cpu)",
        choices=("cpu", "cuda"),
    )
    dtype: Sequence[str] = option(
        ("float32",),
        f"{', '.join(DTYPES)}, or all",
        type=some_of(DTYPES),
        metavar="TYPE,...",
    )
    threads: int = integer(omp_threads(cores()), "CPU threads")
    repetitions: int = integer(5, "rounds of measurement")
    vocab_size: int = integer(VOCABULARY, "words of the joined vocabulary", 16)
    seed: int = option(1, "random seed", type=seed, metavar="N")
    profile: bool = option(
        False,
        "also name the operators that take longest, and where the host waits for the GPU",
    )
    out: Path | None = option(
        None,
        "write FILE.json and FILE.md after each measurement; the same command resumes",
        type=Path,
        metavar="FILE",
    )
    baseline: Path | None = option(
        None,
        "FILE.json of an earlier run: say which ratios moved (exit status 1 if any did)",
        type=Path,
        metavar="FILE",
    )

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of attention to measure."""
        return self.attention or tuple(KINDS)


def combinations(**lists: Iterable[Any]) -> Iterator[Values]:
    """Yield a cell for each combination of the lists' values."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


class Benchmark(ABC):
    """One subcommand of ``fairseq-mhe bench``.

    The command calls class methods; a process for each variant makes an instance and calls it.
    ``columns``: headings with the name of a fact or of a part of the time.
    """

    title: ClassVar[str]
    legend: ClassVar[str]
    columns: ClassVar[dict[str, str]]
    options: ClassVar[type[Options]]

    def __init__(self, variant: Variant, options: Any) -> None:
        self.variant = variant
        self.settings = options
        self.on_gpu = options.device == "cuda"
        self._has_started = False

    @classmethod
    @abstractmethod
    def cells(cls, options: Any) -> Iterator[Values]:
        """Yield the cells in the order of their measurement."""

    @classmethod
    def variants(cls, options: Any) -> list[Variant]:
        """Return the variants to compare in each cell."""
        return [*stock_variants(options.device), *kind_variants(options.kinds)]

    @classmethod
    def of_variant(cls, variant: Variant) -> "type[Benchmark]":
        """Return the class that measures a variant."""
        return cls

    @abstractmethod
    def prepare(self, cell: Values) -> None:
        """Build the model and the inputs of a cell."""

    @abstractmethod
    def repetition(self) -> Seconds:
        """Do the work once; return seconds by part, including ``total``."""

    def first_pass(self) -> Seconds:
        """Do the work for the first time, which warms up, plans kernels and records graphs."""
        return self.repetition()

    @abstractmethod
    def facts(self) -> Values:
        """Return results other than time, as plain values; called after a repetition."""

    def begin(self, cell: Values) -> None:
        """Prepare a cell, warm up, and measure the peak memory of a repetition.

        The first pass is timed after libraries have started, with shapes that are all new.
        """
        gc.collect()
        if not self._has_started:
            small = {name: size for name, size in _SMALL.items() if name in cell}
            self.prepare({**cell, **small})
            self.repetition()
            self._has_started = True
        self.prepare(cell)
        self._first_seconds = self.first_pass()["total"]
        for _ in range(WARM_UPS - 1):
            self.repetition()
        is_tuned = self.variant.is_tuned and keep_freed_memory(_LARGEST_KEPT)
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
        """Return the facts, the first pass, the peak memory and, if asked for, a profile."""
        result: Values = {"first_seconds": self._first_seconds, "peak_bytes": self._peak}
        result |= self.facts()
        if self.settings.profile:
            result["operators"] = longest_operators(self.repetition, self.on_gpu)
            result["waits"] = waiting_places(self.repetition) if self.on_gpu else {}
        return result
