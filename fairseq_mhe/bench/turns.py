"""Every variant of a cell in turns: whatever the machine does meanwhile happens to all of them."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairseq_mhe.bench.benchmark import STOCK, Cell
from fairseq_mhe.bench.worker import FAILED, OK, OUT_OF_MEMORY, REFUSED, Answer, Worker
from fairseq_mhe.common.errors import UserError


@dataclass
class Outcome:
    """What came of one variant: seconds of each repetition by part, and facts; or a reason."""

    status: str = OK
    reason: str = ""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, answer: Answer) -> bool:
        """Take an answer in; whether it is a good one. Raises as `measure`."""
        if answer.status == REFUSED:
            raise UserError(answer.value)
        if answer.status == FAILED:
            raise RuntimeError(f"a measured process failed:\n{answer.value}")
        if answer.status != OK:
            self.status, self.reason = answer.status, answer.value
        return answer.status == OK


def measure(
    workers: Mapping[str, Worker],
    cell: Cell,
    repetitions: int,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Outcome]:
    """Repeat a cell's work, each variant once a round and another one first in each round.

    Memory of a GPU is shared by all processes. Where one runs out of it, the others give back what
    they only keep for later, and it tries again; from then on each gives back after its turn.
    ``progress`` is called after every turn.

    Raises:
        UserError: a variant cannot be built.
        RuntimeError: something else than memory failed in a worker; holds its traceback.
    """
    outcomes = {name: Outcome() for name in workers}
    for worker in workers.values():  # all at the same time: nothing is measured yet
        worker.send("prepare", dict(cell))
    for name, worker in workers.items():
        outcomes[name].note(worker.receive())
    names, crowded = list(workers), False
    for number in range(repetitions):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if outcomes[name].status == OK:
                crowded = _turn(workers, name, outcomes[name], crowded)
            progress()
    for name, outcome in outcomes.items():
        if outcome.status == OK:
            answer = workers[name].ask("facts")
            if outcome.note(answer):
                outcome.facts = answer.value
    return outcomes


def _turn(workers: Mapping[str, Worker], name: str, outcome: Outcome, crowded: bool) -> bool:
    """One repetition; whether memory has been short, now or before."""
    worker = workers[name]
    answer = worker.ask("repetition")
    if answer.status == OUT_OF_MEMORY:
        crowded = True
        for other in workers.values():
            other.ask("release")
        answer = worker.ask("repetition")
    if crowded:
        worker.ask("release")
    if outcome.note(answer):
        for part, seconds in answer.value.items():
            outcome.seconds.setdefault(part, []).append(seconds)
    return crowded


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
