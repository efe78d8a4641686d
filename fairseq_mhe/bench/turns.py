"""Each variant of a cell in a process of its own, all of them in turns.

Whatever the machine does meanwhile happens to all of them, and memory is each one's own.
"""

import contextlib
import logging
import multiprocessing
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
import torch

from fairseq_mhe.bench.benchmark import STOCK, Benchmark, Cell
from fairseq_mhe.common.errors import ErrorExit, UserError

OK, OUT_OF_MEMORY = "ok", "out of memory"
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
#: In a process that measures: its variant's benchmark.
_benchmarks: dict[str, Benchmark] = {}


def _start(make: type[Benchmark], variant: str, settings: Namespace) -> None:
    """Begin a process that measures."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    _benchmarks[variant] = make(variant, settings)


def call(variant: str, method: str, *arguments: Any) -> Any:
    """Call a method of this process' benchmark.

    Raises:
        UserError: options do not fit, also where fairseq would end its process.
        MemoryError: there is not enough.
    """
    try:
        return getattr(_benchmarks[variant], method)(*arguments)
    except ErrorExit as error:
        raise UserError(error.message) from None
    except RuntimeError as error:
        if any(words in str(error) for words in _NO_MEMORY):
            raise MemoryError(str(error).split("\n")[0]) from None
        raise


class Worker:
    """A variant's benchmark in a process of its own, and its ``result`` in the cell at hand."""

    result: dict[str, Any]

    def __init__(self, make: type[Benchmark], variant: str, settings: Namespace) -> None:
        self.variant = variant
        # Forked from a server that has imported everything but never computed: quick, and safe with
        # threads and CUDA.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, make.__module__])
        self._pool = ProcessPoolExecutor(1, context, _start, (make, variant, settings))

    def ask(self, method: str, *arguments: Any) -> dict[str, Any]:
        """What a method returns; once memory has run out, nothing for the rest of the cell.

        Raises:
            UserError: the variant cannot be built, or its process was killed.
        """
        if self.result["status"] != OK:
            return {}
        try:
            return self._pool.submit(call, self.variant, method, *arguments).result() or {}
        except MemoryError as error:
            self.result = {"status": OUT_OF_MEMORY, "reason": str(error)}
            return {}
        except BrokenProcessPool:
            raise UserError(
                f"the process of {self.variant} was killed, perhaps because memory ran out: leave "
                "it out, or choose smaller batches"
            ) from None


@contextlib.contextmanager
def workers(
    makes: Mapping[str, type[Benchmark]], settings: Namespace
) -> Iterator[list[Worker]]:
    """A worker for each variant while the block runs."""
    try:
        yield [Worker(make, variant, settings) for variant, make in makes.items()]
    finally:
        for process in multiprocessing.active_children():
            process.kill()


def measure(
    workers: list[Worker], cell: Cell, repetitions: int, progress: Callable[[int], None]
) -> dict[str, dict[str, Any]]:
    """Repeat a cell's work, each variant once a round and another one first in each round.

    ``progress`` is called with the number of turns after each.

    Returns:
        By variant the ``status``, `OK` or `OUT_OF_MEMORY`; where that is `OK` its ``seconds`` by
        part, the benchmark's result and what `_summary` says, else the ``reason``.
    """
    for worker in workers:
        worker.result = {"status": OK, "seconds": {}}
        worker.ask("begin", dict(cell))
    for number in range(repetitions):
        first = number % len(workers)
        for turn, worker in enumerate(workers[first:] + workers[:first], 1):
            for part, seconds in worker.ask("turn").items():
                worker.result["seconds"].setdefault(part, []).append(seconds)
            progress(number * len(workers) + turn)
    for worker in workers:
        facts = worker.ask("result")  # after which its own result may be another
        worker.result.update(facts)
    results = {worker.variant: worker.result for worker in workers}
    stock = results[STOCK].get("seconds", {}).get("total")
    for result in results.values():
        if result["status"] == OK:
            result.update(_summary(result, stock))
    return results


def _summary(result: Mapping[str, Any], stock: list[float] | None) -> dict[str, Any]:
    """``median`` and ``quartiles`` of the seconds by part.

    ``rate``: the result's units a second, where it has any; ``relative``: how many times as fast
    as stock fairseq, the median and quartiles of the rounds' ratios.
    """
    quartiles = {part: _quartiles(values) for part, values in result["seconds"].items()}
    summary: dict[str, Any] = {
        "median": {part: median for part, (_, median, _) in quartiles.items()},
        "quartiles": {part: [low, high] for part, (low, _, high) in quartiles.items()},
        "relative": None,
    }
    if "units" in result:
        summary["rate"] = result["units"] / summary["median"]["total"]
    if stock:
        low, median, high = _quartiles(np.divide(stock, result["seconds"]["total"]))
        summary["relative"] = {"median": median, "low": low, "high": high}
    return summary


def _quartiles(values: Any) -> list[float]:
    quartiles: list[float] = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return quartiles
