"""Records the kernels of a function as a CUDA graph, and tells whether a recording still fits.

A graph reads and writes the memory addresses of its recording. It is valid only for the shapes of
its recording, and as long as nobody else uses these addresses.
"""

import gc
import logging
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from fairseq_mhe.common.errors import UserError

logger = logging.getLogger(__name__)

#: A function that starts kernels.
Work = Callable[[], None]
Shape = tuple[int, ...]
Made = TypeVar("Made")


class Recorder:
    """Records graphs that run one at a time, and so share memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        #: Bytes of the shared memory, which nothing but these graphs can use.
        self.pool_bytes = 0

    def record(self, work: Work) -> Work:
        """Return a function that starts the kernels of ``work``; it does not run its Python code.

        Raises torch.OutOfMemoryError if the GPU's memory is full.
        """
        graph = torch.cuda.CUDAGraph()
        gc.disable()  # CUDA ends a recording if Python frees another model's graph meanwhile
        try:
            # "thread_local" lets threads that load data call CUDA during the recording.
            with (
                # Returns to this stream even if torch.cuda.graph fails to end a recording.
                torch.cuda.stream(torch.cuda.current_stream()),
                torch.cuda.graph(graph, self._pool, capture_error_mode="thread_local"),
            ):
                self._count_memory(work)
        except RuntimeError as error:
            # CUDA may refuse to end a recording that broke off, and so hide why it did.
            if isinstance(error.__context__, torch.OutOfMemoryError):
                raise error.__context__ from None
            raise
        finally:
            gc.enable()
        return graph.replay

    def _count_memory(self, work: Work) -> None:
        before = torch.cuda.memory_reserved()
        try:
            work()
        finally:
            self.pool_bytes += torch.cuda.memory_reserved() - before

    def has_memory(self, batch: float, graph: float = 0) -> bool:
        """Return whether ``batch`` bytes fit beside the graphs, and one more of ``graph`` bytes."""
        free, _ = torch.cuda.mem_get_info()
        usable = free + torch.cuda.memory_reserved()
        return usable > batch + max(graph, self.pool_bytes)

    def half_is_free(self) -> bool:
        """Return whether half of the GPU's memory is free for other work than these graphs."""
        free, total = torch.cuda.mem_get_info()
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return free + unused - self.pool_bytes > total / 2


class Snapshot:
    """What recordings take for granted of a module.

    That is where its parameters and buffers lie, which of them are trained, and which of its parts
    are in training mode.
    """

    def __init__(self, module: nn.Module) -> None:
        self._modules = list(module.modules())
        self._tensors: list[tuple[dict[str, Any], str]] = []  # holder and name of each
        for child in self._modules:
            for holder in (child._parameters, child._buffers):
                names = [name for name, tensor in holder.items() if tensor is not None]
                self._tensors += [(holder, name) for name in names]
        self._first = self._now()

    def changed(self) -> bool:
        """Return whether something differs now, as after ``model.half()``."""
        return self._now() != self._first

    def _now(self) -> tuple[list[Any], list[Any]]:
        tensors = []
        for holder, name in self._tensors:
            tensor = holder[name]
            tensors.append((tensor.data_ptr(), tensor.requires_grad))
        return tensors, [child.training for child in self._modules]


class Recordings:
    """Base of all that holds recordings of one ``module``.

    They hold addresses of its memory, so a copy of the module (as of --store-ema) or a pickle has
    None in their place.
    """

    advice: str  # how a user turns these recordings off

    def __init__(self, module: Any) -> None:
        self.module = module
        self._too_large: list[Shape] = []  # their recordings ran out of memory
        self.forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def forget(self) -> None:
        """Drop all recordings."""
        self.recorder = Recorder()
        self.snapshot = Snapshot(self.module)

    def try_to_record(self, shape: Shape, make: Callable[[], Made]) -> Made | None:
        """Return what ``make`` records for a shape; None if the GPU's memory is too small for it.

        Then all recordings are gone, and neither this shape nor a larger one is tried again. Raises
        UserError if the code cannot be recorded, as where it asks the GPU for a number.
        """
        for other in self._too_large:
            if all(ours >= theirs for ours, theirs in zip(shape, other, strict=True)):
                return None
        try:
            return make()
        except torch.OutOfMemoryError:
            self._too_large.append(shape)
        except RuntimeError as error:  # the same code has just run without a graph
            reason = str(error).partition("\n")[0]
            raise UserError(
                f"no CUDA graph can hold the code of this model ({reason}): {self.advice}"
            ) from error
        # Only when all graphs are gone does torch return their memory, which the caller may need.
        self.forget()
        torch.cuda.empty_cache()
        sizes = " x ".join(map(str, shape))
        logger.warning(f"no memory for a CUDA graph of {sizes}: such batches run without")
        return None


def round_up(size: int, multiple: int, maximum: int = sys.maxsize) -> int:
    """Round up to ``multiple``, or 1/8 of the next power of two if larger; at most ``maximum``."""
    step = max(multiple, 2 ** (size - 1).bit_length() // 8)
    padded = math.ceil(size / step) * step
    return max(size, min(padded, maximum))
