"""Every variant of a cell in turns: whatever the machine does meanwhile happens to all of them."""

import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from fairseq_mhe.bench.benchmark import STOCK, Cell
from fairseq_mhe.bench.worker import OutOfMemoryError, Worker

OK, OUT_OF_MEMORY, DIED = "ok", "out of memory", "died"


@dataclass
class Outcome:
    """What came of one variant: seconds of each repetition by part, and facts; or a reason."""

    status: str = OK
    reason: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def result(self, worker: Worker, future: Future[Any]) -> Any:
        """What a worker returns, or None if memory ran out or its process ended."""
        try:
            return future.result()
        except OutOfMemoryError as error:
            self.status, self.reason = OUT_OF_MEMORY, str(error)
        except BrokenProcessPool:
            self.status, self.reason = DIED, "its process ended, perhaps because memory ran out"
            worker.died()
        return None


def measure(
    workers: Mapping[str, Worker],
    cell: Cell,
    repetitions: int,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Outcome]:
    """Repeat a cell's work, each variant once a round and another one first in each round.

    ``progress`` is called after every turn.

    Raises:
        UserError: a variant cannot be built.
    """
    outcomes = {name: Outcome() for name in workers}
    # All at the same time: nothing is measured yet.
    preparing = {name: worker.ask("prepare", dict(cell)) for name, worker in workers.items()}
    for name, future in preparing.items():
        outcomes[name].result(workers[name], future)
    names = list(workers)
    for number in range(repetitions):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            outcome, worker = outcomes[name], workers[name]
            if outcome.status == OK:
                seconds = outcome.result(worker, worker.ask("repetition")) or {}
                for part, value in seconds.items():
                    outcome.seconds.setdefault(part, []).append(value)
            progress()
    for name, outcome in outcomes.items():
        if outcome.status == OK:
            outcome.facts = outcome.result(workers[name], workers[name].ask("facts")) or {}
    return outcomes


def summaries(outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, Any]]:
    """Every outcome as the results have it.

    ``median`` and ``quartiles`` of the seconds by part; ``rate`` in the facts' units a second,
    where they have any; ``relative``: how many times as fast as stock fairseq, the median and
    quartiles of the rounds' ratios.
    """
    return {name: _summary(outcome, outcomes[STOCK]) for name, outcome in outcomes.items()}


def _summary(outcome: Outcome, stock: Outcome) -> dict[str, Any]:
    if outcome.status != OK:
        return {"status": outcome.status, "reason": outcome.reason}
    seconds = outcome.seconds
    found: dict[str, Any] = {
        "status": OK,
        "seconds": seconds,
        "median": {part: statistics.median(values) for part, values in seconds.items()},
        "quartiles": {part: quartiles(values) for part, values in seconds.items()},
        "relative": None,
        **outcome.facts,
    }
    if "units" in outcome.facts:
        found["rate"] = outcome.facts["units"] / found["median"]["total"]
    if stock.status == OK:
        pairs = zip(stock.seconds["total"], seconds["total"], strict=True)
        ratios = [theirs / own for theirs, own in pairs]
        low, high = quartiles(ratios)
        found["relative"] = {"median": statistics.median(ratios), "low": low, "high": high}
    return found


def quartiles(values: list[float]) -> list[float]:
    """The first and the third quartile; of one value, that value twice."""
    if len(values) == 1:
        return values * 2
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return [first, third]
