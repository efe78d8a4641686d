"""Each variant of a cell in a process of its own, all of them in turns.

Whatever the machine does meanwhile happens to all of them, and memory is each one's own.
"""

import contextlib
import functools
import gc
import logging
import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from operator import truediv
from typing import Any

import numpy as np
import torch

from fairseq_mhe.bench.benchmark import STOCK, Benchmark, Cell, Settings
from fairseq_mhe.bench.meters import PeakMemory
from fairseq_mhe.common.errors import ErrorExit, UserError

OK, OUT_OF_MEMORY = "ok", "out of memory"
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


class Session:
    """What happens inside a worker's process, with one workload."""

    def __init__(self, make: type[Benchmark], variant: str, settings: Settings) -> None:
        self.workload = make(variant, settings)
        self._cuda = settings.device == "cuda"
        self._memory = PeakMemory(torch.device(settings.device))
        self._is_first = True

    def prepare(self, cell: Cell) -> None:
        """Make everything ready for a cell; memory counts from here.

        The work is done once before the very first cell: libraries load code and make buffers of
        their own when they are first used, which is no cell's memory.
        """
        self.workload.prepare(cell)
        if self._is_first:
            self.workload.repetition()
            self.workload.prepare(cell)
        self._is_first = False
        self._memory.start()
        self._cold = True

    def repetition(self) -> dict[str, float]:
        """Seconds by part; the work is done once before the first that is timed.

        On a GPU, which all processes share, what is not in use goes back to it after each turn.
        """
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


def plain_errors(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function.

    Raises:
        UserError: options do not fit, also where fairseq would end its process.
        MemoryError: there is not enough.
    """
    try:
        return function(*arguments)
    except ErrorExit as error:
        raise UserError(error.message) from None
    except RuntimeError as error:
        if any(words in str(error) for words in _NO_MEMORY):
            raise MemoryError(str(error).split("\n")[0]) from None
        raise


@functools.cache
def _session(make: type[Benchmark], variant: str, settings: Settings) -> Session:
    """The one session of a worker's process."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    return plain_errors(Session, make, variant, settings)


def _call(made_of: tuple[type[Benchmark], str, Settings], method: str, *arguments: Any) -> Any:
    return plain_errors(getattr(_session(*made_of), method), *arguments)


class Worker:
    """A `Session` in a process of its own."""

    def __init__(self, make: type[Benchmark], variant: str, settings: Settings) -> None:
        self._session = make, variant, settings
        # Forked from a server that has imported everything but never computed: quick, and safe with
        # threads and CUDA.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, make.__module__])
        self._pool = ProcessPoolExecutor(1, context)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the session; raises what it raises, and UserError if it was killed."""
        try:
            return self._pool.submit(_call, self._session, method, *arguments).result()
        except BrokenProcessPool:
            _, variant, _ = self._session
            raise UserError(
                f"the process of {variant} was killed, perhaps because memory ran out: leave it "
                "out, or choose smaller batches"
            ) from None


@contextlib.contextmanager
def workers(
    makes: Mapping[str, type[Benchmark]], settings: Settings
) -> Iterator[dict[str, Worker]]:
    """A worker for each variant while the block runs."""
    try:
        yield {variant: Worker(make, variant, settings) for variant, make in makes.items()}
    finally:
        for process in multiprocessing.active_children():
            process.kill()


def measure(
    workers: Mapping[str, Worker],
    cell: Cell,
    repetitions: int,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Repeat a cell's work, each variant once a round and another one first in each round.

    ``progress`` is called after every turn.

    Returns:
        By variant the ``status``, `OK` or `OUT_OF_MEMORY`; where that is `OK` its ``seconds`` by
        part, its facts and what `_summary` says, else the ``reason``.

    Raises:
        UserError: a variant cannot be built, or its process was killed.
    """
    names = list(workers)
    results: dict[str, dict[str, Any]] = {name: {"status": OK, "seconds": {}} for name in names}
    for name in names:
        _try(results[name], workers[name], "prepare", dict(cell))
    for number in range(repetitions):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            parts = _try(results[name], workers[name], "repetition")
            for part, seconds in parts.items():
                results[name]["seconds"].setdefault(part, []).append(seconds)
            progress()
    for name in names:
        facts = _try(results[name], workers[name], "facts")
        results[name].update(facts)
    stock = results[STOCK].get("seconds", {}).get("total")
    for result in results.values():
        if result["status"] == OK:
            result.update(_summary(result, stock))
    return results


def _try(
    result: dict[str, Any], worker: Worker, method: str, *arguments: Any
) -> dict[str, Any]:
    """What the worker's session returns; if memory runs out, nothing from then on."""
    try:
        if result["status"] == OK:
            return worker.call(method, *arguments) or {}
    except MemoryError as error:
        result.clear()
        result.update(status=OUT_OF_MEMORY, reason=str(error))
    return {}


def _summary(result: Mapping[str, Any], stock: list[float] | None) -> dict[str, Any]:
    """``median`` and ``quartiles`` of the seconds by part.

    ``rate``: the facts' units a second, where they have any; ``relative``: how many times as fast
    as stock fairseq, the median and quartiles of the rounds' ratios.
    """
    median, ends = {}, {}
    for part, values in result["seconds"].items():
        low, median[part], high = _quartiles(values)
        ends[part] = [low, high]
    summary: dict[str, Any] = {"median": median, "quartiles": ends, "relative": None}
    if "units" in result:
        summary["rate"] = result["units"] / median["total"]
    if stock:
        low, middle, high = _quartiles(list(map(truediv, stock, result["seconds"]["total"])))
        summary["relative"] = {"median": middle, "low": low, "high": high}
    return summary


def _quartiles(values: Sequence[float]) -> list[float]:
    """All three."""
    quartiles: list[float] = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return quartiles
