"""Turns are fair, lack of memory ends one variant only, and ratios are those of the same round."""

from __future__ import annotations

import pytest

from fairseq_mhe.bench.turns import Outcome, measure, quartiles, summaries
from fairseq_mhe.bench.worker import DIED, FAILED, OK, OUT_OF_MEMORY, REFUSED, Answer
from fairseq_mhe.common.errors import UserError

CELL = {"length": 3}


class Scripted:
    """A worker that answers as the test says and notes what it was asked, in a shared log."""

    def __init__(self, name: str, log: list, answers=(), prepare: Answer | None = None) -> None:
        self.name, self.log, self.answers = name, log, list(answers)
        self.prepared = prepare or Answer(OK)

    def send(self, command, *arguments) -> None:
        self.log.append((self.name, command, *arguments))
        self.pending = command

    def receive(self) -> Answer:
        if self.pending == "prepare":
            return self.prepared
        if self.pending == "facts":
            return Answer(OK, {"units": 6, "peak_bytes": 1})
        if self.pending == "repetition" and self.answers:
            return self.answers.pop(0)
        return Answer(OK, {"total": 1.0})

    def ask(self, command, *arguments) -> Answer:
        self.send(command, *arguments)
        return self.receive()


def run(repetitions: int = 3, **scripts):
    log: list = []
    workers = {name: Scripted(name, log, **script) for name, script in scripts.items()}
    return measure(workers, CELL, repetitions), log


def test_each_round_every_variant_once_and_another_first() -> None:
    outcomes, log = run(3, stock={}, mha={}, sha={})
    assert log[:3] == [(name, "prepare", CELL) for name in ("stock", "mha", "sha")]
    turns = [name for name, command, *_ in log if command == "repetition"]
    assert turns == ["stock", "mha", "sha", "mha", "sha", "stock", "sha", "stock", "mha"]
    assert all(outcome.seconds == {"total": [1.0] * 3} for outcome in outcomes.values())
    assert not [entry for entry in log if entry[1] == "release"]


def test_out_of_memory_is_tried_again_once_the_others_have_given_back() -> None:
    crowded = [Answer(OUT_OF_MEMORY, "no room"), Answer(OK, {"total": 2.0})]
    outcomes, log = run(2, stock={}, mha={"answers": crowded})
    assert outcomes["mha"].status == OK
    assert outcomes["mha"].seconds == {"total": [2.0, 1.0]}
    at = log.index(("mha", "repetition"))
    assert log[at + 1 : at + 5] == [
        ("stock", "release"),
        ("mha", "release"),
        ("mha", "repetition"),
        ("mha", "release"),
    ]
    # From then on everyone gives back after its turn.
    assert log[at + 5 :][:4] == [
        ("mha", "repetition"),
        ("mha", "release"),
        ("stock", "repetition"),
        ("stock", "release"),
    ]


def test_out_of_memory_twice_is_the_result() -> None:
    outcomes, log = run(3, stock={}, mha={"answers": [Answer(OUT_OF_MEMORY, "no room")] * 2})
    assert (outcomes["mha"].status, outcomes["mha"].reason) == (OUT_OF_MEMORY, "no room")
    assert log.count(("mha", "repetition")) == 2
    assert outcomes["stock"].seconds == {"total": [1.0] * 3}
    assert ("mha", "facts") not in log


@pytest.mark.parametrize("status", [DIED, OUT_OF_MEMORY])
def test_a_variant_that_cannot_be_made_ready_leaves_the_others_alone(status: str) -> None:
    outcomes, log = run(2, stock={}, mha={"prepare": Answer(status, "why")})
    assert outcomes["mha"].status == status
    assert ("mha", "repetition") not in log
    found = summaries(outcomes)
    assert found["mha"] == {"status": status, "reason": "why"}
    assert found["stock"]["relative"] == {"median": 1.0, "low": 1.0, "high": 1.0}


def test_bad_options_and_bugs_end_the_run() -> None:
    with pytest.raises(UserError, match="no such thing"):
        run(1, stock={}, mha={"prepare": Answer(REFUSED, "no such thing")})
    with pytest.raises(RuntimeError, match=r"(?s)a measured process failed.*Traceback"):
        run(1, stock={"answers": [Answer(FAILED, "Traceback ...")]})


def test_progress_is_told_of_every_turn() -> None:
    turns = []
    measure(
        {"stock": Scripted("stock", []), "mha": Scripted("mha", [])},
        CELL,
        3,
        lambda: turns.append(1),
    )
    assert len(turns) == 6


def test_ratios_are_of_the_same_round() -> None:
    """While the machine is slow for a round, it is slow for all: the ratio stays."""
    stock = Outcome(seconds={"total": [2.0, 20.0, 4.0]}, facts={"units": 8})
    ours = Outcome(
        seconds={"total": [1.0, 10.0, 2.0], "reorder": [0.5, 0.5, 0.25]}, facts={"units": 8}
    )
    found = summaries({"stock": stock, "mha": ours})["mha"]
    assert found["relative"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert found["median"] == {"total": 2.0, "reorder": 0.5}
    assert found["quartiles"] == {"total": [1.5, 6.0], "reorder": [0.375, 0.5]}
    assert found["rate"] == 4.0
    assert found["seconds"]["total"] == [1.0, 10.0, 2.0]


def test_without_stock_there_is_no_ratio() -> None:
    found = summaries({"stock": Outcome(OUT_OF_MEMORY), "mha": Outcome(seconds={"total": [1.0]})})
    assert found["mha"]["relative"] is None
    assert "rate" not in found["mha"]


def test_quartiles() -> None:
    assert quartiles([5.0]) == [5.0, 5.0]
    assert quartiles([4.0, 1.0, 2.0, 3.0, 5.0]) == [2.0, 4.0]
