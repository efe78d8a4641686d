"""Map a function over items in worker processes, in order, with few items in memory."""

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
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.text import text_blocks

#: The number of items from which on progress is shown; fewer items take only seconds.
_SHOWN_FROM = 20
Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield ``function(item)`` for every item, in order, computed by ``workers`` processes.

    At most ``2 * workers`` items are in flight, so that a corpus larger than memory streams
    through. Raises UserError if a worker is killed, as the system does when memory runs out.
    """
    # All are started at once, and more are not faster.
    workers = min(workers, 4 * cores())
    items = iter(items)
    first = list(islice(items, 2))
    items = chain(first, items)
    if workers == 1 or len(first) < 2:
        yield from map(function, items)
        return
    # A spawned process would import torch and fairseq, which takes longer than a small corpus.
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
        problem = "a worker process was killed, probably because memory ran out"
        raise UserError(f"{problem}; try fewer --workers") from None
    except BaseException:  # including Ctrl-C: nobody needs the pending results
        for worker in (executor._processes or {}).values():
            worker.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def map_blocks(
    function: Callable[[bytes], Result], path: Path, size: int, workers: int, verb: str
) -> Iterator[Result]:
    """Apply `ordered_map` to a text file in blocks of whole lines of about ``size`` bytes."""
    results = ordered_map(function, text_blocks(path, size), workers)
    total = path.stat().st_size // size
    if total >= _SHOWN_FROM:
        results = tracked(results, f"{verb} {path.name}", total, "chunks")
    return results
