"""Work spread over the cores, in order, with a bounded number of chunks in memory."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from fairseq_mhe.common.child import end_with_parent
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import tracked
from fairseq_mhe.prepare.text import text_blocks

#: Items from which on their progress is shown: the work takes more than seconds.
_MANY = 20
Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    name: str = "",
    total: int = 0,
) -> Iterator[Result]:
    """``function`` of every item, in order, computed by ``workers`` processes.

    At most ``2 * workers`` items are under way, so that a corpus larger than the memory streams
    through. ``name``, of about ``total`` items: what progress is shown of, if they are many. Raises
    UserError where a process was killed, as the system does when memory runs out.
    """
    results = _results(function, items, workers)
    return results if total < _MANY else tracked(results, name, total, "chunks")


def map_blocks(
    function: Callable[[bytes], Result], path: Path, size: int, workers: int, verb: str
) -> Iterator[Result]:
    """`ordered_map` over a text file in blocks of whole lines of about ``size`` bytes."""
    blocks, total = text_blocks(path, size), path.stat().st_size // size
    return ordered_map(function, blocks, workers, f"{verb} {path.name}", total)


def _results(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    items = iter(items)
    first = list(islice(items, 2))
    items = chain(first, items)
    if workers == 1 or len(first) < 2:
        yield from map(function, items)
        return
    # By forks: a new process would import torch and fairseq, longer than a small corpus takes.
    fork = multiprocessing.get_context("fork")
    executor = ProcessPoolExecutor(workers, fork, initializer=end_with_parent)
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        problem = "a worker process was killed, probably for want of memory"
        raise UserError(f"{problem}; try fewer --workers") from None
    except BaseException:  # Ctrl-C, too: nobody waits for what is under way
        for worker in (executor._processes or {}).values():
            worker.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
