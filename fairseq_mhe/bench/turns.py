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

_ADVICE = "leave it out, or choose smaller batches"
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
        UserError: options do not fit, also where fairseq would end its process; or memory ran out.
    """
    try:
        return getattr(_benchmarks[variant], method)(*arguments)
    except ErrorExit as error:
        raise UserError(error.message) from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "memory" in str(error):
            reason = str(error).split("\n")[0]
            raise UserError(f"{variant} has not the memory ({reason}): {_ADVICE}") from None
        raise


@contextlib.contextmanager
def workers(
    makes: Mapping[str, type[Benchmark]], settings: Namespace
) -> Iterator[dict[str, ProcessPoolExecutor]]:
    """A process for each variant while the block runs.

    It is forked from a server that has imported everything but never computed: quick, and safe with
    threads and CUDA.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *{make.__module__ for make in makes.values()}])
    try:
        yield {
            variant: ProcessPoolExecutor(1, context, _start, (make, variant, settings))
            for variant, make in makes.items()
        }
    finally:
        for process in multiprocessing.active_children():
            process.kill()


def measure(
    workers: Mapping[str, ProcessPoolExecutor],
    cell: Cell,
    repetitions: int,
    progress: Callable[[int], None],
) -> dict[str, dict[str, Any]]:
    """Repeat a cell's work, each variant once a round and another one first in each round.

    ``progress`` is called with the number of turns after each.

    Returns:
        By variant the ``seconds`` by part, the benchmark's result and what `_summary` says.

    Raises:
        UserError: a variant cannot be built or has not the memory, or its process was killed.
    """
    variants = list(workers)
    results: dict[str, dict[str, Any]] = {variant: {"seconds": {}} for variant in variants}

    def ask(variant: str, method: str, *arguments: Any) -> Any:
        try:
            return workers[variant].submit(call, variant, method, *arguments).result()
        except BrokenProcessPool:
            raise UserError(f"the process of {variant} was killed: {_ADVICE}") from None

    for variant in variants:
        ask(variant, "begin", dict(cell))
    for number in range(repetitions):
        first = number % len(variants)
        for turn, variant in enumerate(variants[first:] + variants[:first], 1):
            for part, seconds in ask(variant, "turn").items():
                results[variant]["seconds"].setdefault(part, []).append(seconds)
            progress(number * len(variants) + turn)
    for variant, result in results.items():
        result.update(ask(variant, "result"))
        result.update(_summary(result, results[STOCK]["seconds"]["total"]))
    return results


def _summary(result: Mapping[str, Any], stock: list[float]) -> dict[str, Any]:
    """``median`` and ``quartiles`` of the seconds by part.

    ``rate``: the result's units a second, where it has any; ``relative``: how many times as fast
    as stock fairseq, the median and quartiles of the rounds' ratios.
    """
    quartiles = {part: _quartiles(values) for part, values in result["seconds"].items()}
    summary: dict[str, Any] = {
        "median": {part: median for part, (_, median, _) in quartiles.items()},
        "quartiles": {part: [low, high] for part, (low, _, high) in quartiles.items()},
    }
    if "units" in result:
        summary["rate"] = result["units"] / summary["median"]["total"]
    low, median, high = _quartiles(np.divide(stock, result["seconds"]["total"]))
    return {**summary, "relative": {"median": median, "low": low, "high": high}}


def _quartiles(values: Any) -> list[float]:
    quartiles: list[float] = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return quartiles
