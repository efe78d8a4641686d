"""What every benchmark does with one model: prepare a cell of the results, and repeat it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from fairseq_mhe.bench.settings import Settings

#: The settings of one comparison, plain values: shape, beam, dtype and so on.
Cell = Mapping[str, Any]


class Workload(ABC):
    """One variant in a process of its own.

    Args:
        variant: ``STOCK``, a kind of attention, such a kind with ``INT8`` behind it, or
        ``CTRANSLATE2``.
        settings: of the run.
    """

    def __init__(self, variant: str, settings: Settings) -> None:
        self.variant = variant
        self.settings = settings
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
