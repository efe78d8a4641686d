"""Measure every variant of a cell in turns, so that whatever the machine does meanwhile happens to all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq_mhe.bench.settings import STOCK
from fairseq_mhe.bench.worker import FAILED, OK, OUT_OF_MEMORY, REFUSED, Answer, Worker
from fairseq_mhe.bench.workload import Cell
from fairseq_mhe.common.errors import UserError


@dataclass
class Outcome:
    """What came of one variant: seconds of each repetition by part, and facts; or the reason why there is none."""

    status: str = OK
    reason: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def measure(
    workers: Mapping[str, Worker],
    cell: Cell,
    repetitions: int,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Outcome]:
    """Repeat a cell's work, each variant once a round, after it was done once to warm everything up.

    Memory of a GPU is shared by all processes. Where one runs out of it, the others give back what
    they only keep for later, and it tries again; from then on each gives back after its turn.

    Args:
        workers: by variant.
        cell: what to measure.
        repetitions: rounds.
        progress: called after every turn.

    Raises:
        UserError: a variant cannot be built.
        RuntimeError: something else than memory failed in a worker; holds its traceback.
    """
    comparison = _Comparison(workers)
    comparison.prepare(cell)
    for number in range(repetitions):
        for name in _rotated(list(workers), number):
            comparison.turn(name)
            progress()
    comparison.finish()
    return comparison.outcomes


class _Comparison:
    """The workers of one cell, and what came of them so far."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self.outcomes = {name: Outcome() for name in workers}
        self._workers = workers
        self._crowded = False

    def prepare(self, cell: Cell) -> None:
        """All at the same time: nothing is measured yet."""
        for worker in self._workers.values():
            worker.send("prepare", dict(cell))
        for name, worker in self._workers.items():
            _note(self.outcomes[name], worker.receive())

    def turn(self, name: str) -> None:
        """One repetition of one variant, unless it has failed before."""
        outcome, worker = self.outcomes[name], self._workers[name]
        if outcome.status != OK:
            return
        answer = worker.ask("repetition")
        if answer.status == OUT_OF_MEMORY:
            self._crowded = True
            for other in self._workers.values():
                other.ask("release")
            answer = worker.ask("repetition")
        if self._crowded:
            worker.ask("release")
        _note(outcome, answer)
        if answer.status == OK:
            for part, seconds in answer.value.items():
                outcome.seconds.setdefault(part, []).append(seconds)

    def finish(self) -> None:
        """Collect what is known besides time."""
        for name, outcome in self.outcomes.items():
            if outcome.status == OK:
                answer = self._workers[name].ask("facts")
                _note(outcome, answer)
                outcome.facts = answer.value if answer.status == OK else {}


def _rotated(names: list[str], by: int) -> list[str]:
    """The same names, another one first each round."""
    by %= len(names)
    return names[by:] + names[:by]


def _note(outcome: Outcome, answer: Answer) -> None:
    if answer.status == REFUSED:
        raise UserError(answer.value)
    if answer.status == FAILED:
        raise RuntimeError(f"a measured process failed:\n{answer.value}")
    if answer.status != OK and outcome.status == OK:
        outcome.status, outcome.reason = answer.status, answer.value


def summary(outcome: Outcome, stock: Outcome) -> dict[str, Any]:
    """An outcome as the results have it.

    ``median`` and ``quartiles`` of the seconds by part; ``rate`` in the facts' units a second,
    where they have any; ``relative``: how many times as fast as stock fairseq, the median and
    quartiles of the rounds' ratios.
    """
    if outcome.status != OK:
        return {"status": outcome.status, "reason": outcome.reason}
    total = outcome.seconds["total"]
    found: dict[str, Any] = {
        "status": OK,
        "seconds": outcome.seconds,
        "median": {part: statistics.median(seconds) for part, seconds in outcome.seconds.items()},
        "quartiles": {part: quartiles(seconds) for part, seconds in outcome.seconds.items()},
        "relative": None,
        **outcome.facts,
    }
    if "units" in outcome.facts:
        found["rate"] = outcome.facts["units"] / found["median"]["total"]
    if stock.status == OK:
        ratios = [theirs / own for theirs, own in zip(stock.seconds["total"], total, strict=True)]
        low, high = quartiles(ratios)
        found["relative"] = {"median": statistics.median(ratios), "low": low, "high": high}
    return found


def summaries(outcomes: Mapping[str, Outcome]) -> dict[str, dict[str, Any]]:
    """Every outcome's summary, relative to stock fairseq's."""
    return {name: summary(outcome, outcomes[STOCK]) for name, outcome in outcomes.items()}


def quartiles(values: list[float]) -> list[float]:
    """The first and the third quartile; of one value, that value twice."""
    if len(values) == 1:
        return values * 2
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return [first, third]
