"""What a benchmark is: a class that owns its options, cells, work, floor and columns."""

import argparse
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.tables import Column
from fairseq_mhe.models.build import build_on_meta

#: fairseq's own ``transformer``, biases and all, as it is shipped; ratios are relative to it.
STOCK = "stock"
#: What follows a kind of attention whose model generates with 8-bit integers, or in bf16.
INT8, BF16 = APPROXIMATE = ("_int8", "_bf16")
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: fairseq's models know positions up to here.
_LONGEST = 1024
#: What all variants of one comparison share, plain values: shape, beam, dtype and so on.
Cell = Mapping[str, Any]
_on_meta = functools.cache(build_on_meta)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is held fixed in one run, the same for every model that is compared.

    ``threads``: CPU threads of each measured process; ``vocabulary``: joined, shared by all
    embeddings; ``seconds`` and ``batches``: options of the benchmarks that have them.
    """

    row: str
    device: str
    threads: int
    vocabulary: int
    seed: int = 0
    seconds: float = 0.0
    batches: int = 0


@dataclass(frozen=True)
class Floor:
    """The least work there is: multiply-adds of matrix products, and bytes that must be read."""

    multiply_adds: float
    bytes: float


class Benchmark(ABC):
    """One subcommand of ``fairseq-mhe bench``; a variant is ``STOCK`` or a kind of attention.

    Its class methods belong to the command, its others to the process that measures a variant.
    ``title``: for ``--help``; ``legend``: how its columns are to be read; ``parts``: of the time,
    for a table of their own; ``saves_memory``: whether its memory is compared too.
    """

    title: ClassVar[str]
    legend: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    parts: ClassVar[tuple[str, ...]] = ()
    saves_memory: ClassVar[bool] = False

    def __init__(self, variant: str, settings: Settings) -> None:
        self.variant, self.settings = variant, settings
        self.device = torch.device(settings.device)

    @abstractmethod
    def prepare(self, cell: Cell) -> None:
        """Build the model and the inputs of a cell."""

    @abstractmethod
    def repetition(self) -> dict[str, float]:
        """Do the work once: seconds by part, ``total`` among them."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What is known besides time, after at least one repetition; plain values."""

    @classmethod
    @abstractmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Its own options, after those that all benchmarks have."""

    @classmethod
    @abstractmethod
    def cells(cls, args: argparse.Namespace) -> Iterator[Cell]:
        """What to compare, one after another; raises UserError for lengths that cannot work."""

    @classmethod
    def variants(cls, args: argparse.Namespace) -> dict[str, "type[Benchmark]"]:
        """What is compared in each cell, and who does its work."""
        return dict.fromkeys([STOCK, *args.attention], cls)

    @classmethod
    @abstractmethod
    def least_work(cls, model: Any, cell: Cell, facts: Mapping[str, Any], width: int) -> Floor:
        """The floor of one repetition by a ``model`` without memory behind its parameters.

        ``facts``: what batches hold; ``width``: bytes of a number. Padding costs nothing in
        training, and as much as tokens elsewhere, where it is less than a tenth.
        """

    @classmethod
    def floor(
        cls, variant: str, settings: Settings, cell: Cell, facts: Mapping[str, Any]
    ) -> Floor:
        """A variant's floor; stock fairseq's is MHA's."""
        kind = "mha" if variant == STOCK else variant
        model = _on_meta(settings.row, kind, settings.vocabulary)
        return cls.least_work(model, cell, facts, DTYPES[cell["dtype"]].itemsize)


def limits(own: Floor, mha: Floor) -> dict[str, float]:
    """The floor as the results have it: how many times as fast as MHA if only the floor counted."""
    return {
        "multiply_adds": own.multiply_adds,
        "bytes": own.bytes,
        "arithmetic_limit": mha.multiply_adds / own.multiply_adds,
        "traffic_limit": mha.bytes / own.bytes,
    }


def check_lengths(lengths: Iterable[int], longest: int = _LONGEST) -> None:
    """Raises UserError for a length that the models cannot have."""
    for length in lengths:
        if not 2 <= length <= longest:
            raise UserError(
                f"a length of {length} does not fit: lengths go from 2 to {longest}"
            )
