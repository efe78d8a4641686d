"""One process for each variant, so that memory is its own and all of them can take turns."""

import contextlib
import gc
import logging
import multiprocessing
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from fairseq_mhe.bench.benchmark import Cell, Settings, Workload
from fairseq_mhe.bench.meters import PeakMemory
from fairseq_mhe.common.errors import ErrorExit, UserError

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


class OutOfMemoryError(Exception):
    """A variant needs more memory than there is."""


class Session:
    """What happens inside a worker, with one workload."""

    def __init__(self, make: type[Workload], variant: str, settings: Settings) -> None:
        self.workload = make(variant, settings)
        self._cuda = settings.device == "cuda"
        self._memory = PeakMemory(torch.device(settings.device))
        self._rehearsed = False

    def prepare(self, cell: Cell) -> None:
        """Make everything ready for a cell; memory counts from here."""
        self.workload.prepare(cell)
        self._memory.start()
        self._cell, self._cold = cell, True

    def repetition(self) -> dict[str, float]:
        """Seconds by part; the work is done once before the first that is timed.

        On a GPU, which all processes share, what is not in use goes back to it after each turn.
        """
        if not self._rehearsed:
            # Libraries load code and make buffers of their own when they are first used: no cell's
            # memory.
            self.workload.repetition()
            self.prepare(self._cell)
            self._rehearsed = True
        if self._cold:
            self.workload.repetition()
        seconds = self.workload.repetition()
        self._cold = self._cuda
        if self._cuda:
            gc.collect()
            torch.cuda.empty_cache()
        return seconds

    def facts(self) -> dict[str, Any]:
        """What the workload knows, and the peak of memory."""
        return {"peak_bytes": self._memory.peak(), **self.workload.facts()}


#: What a worker's process was started for, and its session from the first call on.
_made_of: tuple[type[Workload], str, Settings]
_session: Session | None = None


def _start(make: type[Workload], variant: str, settings: Settings) -> None:
    """Begin a worker's process."""
    global _made_of
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    _made_of = make, variant, settings


def _call(method: str, *arguments: Any) -> Any:
    """Call a method of the process's session."""
    global _session
    _session = _session or translated_errors(Session, *_made_of)
    return translated_errors(getattr(_session, method), *arguments)


def translated_errors(function: Any, *arguments: Any) -> Any:
    """Call a function.

    Raises:
        UserError: options do not fit, also where fairseq would end its process.
        OutOfMemoryError: there is not enough.
    """
    try:
        return function(*arguments)
    except ErrorExit as error:
        raise UserError(error.message) from None
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
            raise OutOfMemoryError(text.split("\n")[0]) from None
        raise


class Worker:
    """A session in a process of its own, which starts again after it died."""

    def __init__(self, make: type[Workload], variant: str, settings: Settings) -> None:
        self._made_of = make, variant, settings
        self._pool: ProcessPoolExecutor | None = None

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        """Call a method of the session."""
        if self._pool is None:
            # Forked from a server that has imported everything but never computed: quick, and safe
            # with threads and CUDA.
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__, self._made_of[0].__module__])
            self._pool = ProcessPoolExecutor(1, context, _start, self._made_of)
        try:
            return self._pool.submit(_call, method, *arguments)
        except BrokenProcessPool as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def died(self) -> None:
        """Start another process at the next call."""
        self._pool = None


@contextlib.contextmanager
def workers(makes: Mapping[str, type[Workload]], settings: Settings) -> Iterator[dict[str, Worker]]:
    """A worker for each variant while the block runs."""
    before = set(multiprocessing.active_children())
    try:
        yield {variant: Worker(make, variant, settings) for variant, make in makes.items()}
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
