"""Turns are fair, lack of memory ends one variant only, and ratios are those of the same round."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest
import torch

from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.turns import DIED, OK, OUT_OF_MEMORY, Outcome, measure, summaries
from fairseq_mhe.bench.worker import OutOfMemoryError, Session, translated_errors, workers
from fairseq_mhe.common.errors import ErrorExit, UserError
from tests.bench.conftest import make_settings

CELL = {"beam": 2, "length": 4, "source_length": 4, "batch": 1, "dtype": "float32"}


class Scripted:
    """A worker that does as the test says and notes what it was asked, in a shared log."""

    def __init__(self, name: str, log: list, **script: Any) -> None:
        self.name, self.log, self.script = name, log, script

    def ask(self, method: str, *arguments: Any) -> Future:
        self.log.append((self.name, method))
        future: Future = Future()
        found = self.script.get(method, {"total": 1.0} if method == "repetition" else {"units": 6})
        future.set_exception(found) if isinstance(found, Exception) else future.set_result(found)
        return future

    def died(self) -> None:
        self.log.append((self.name, "died"))


def run(repetitions: int = 3, **scripts: dict):
    log: list = []
    scripted = {name: Scripted(name, log, **script) for name, script in scripts.items()}
    return measure(scripted, CELL, repetitions, lambda: log.append("turn")), log


def test_each_round_every_variant_once_and_another_first() -> None:
    outcomes, log = run(3, stock={}, mha={}, sha={})
    assert log[:3] == [(name, "prepare") for name in ("stock", "mha", "sha")]
    turns = [entry[0] for entry in log if entry[1] == "repetition"]
    assert turns == ["stock", "mha", "sha", "mha", "sha", "stock", "sha", "stock", "mha"]
    assert all(outcome.seconds == {"total": [1.0] * 3} for outcome in outcomes.values())
    assert log.count("turn") == 9


@pytest.mark.parametrize("method", ["prepare", "repetition"])
@pytest.mark.parametrize(
    ("error", "status"), [(OutOfMemoryError("no room"), OUT_OF_MEMORY), (BrokenProcessPool(), DIED)]
)
def test_one_variant_that_fails_leaves_the_others_alone(
    method: str, error: Exception, status: str
) -> None:
    outcomes, log = run(2, stock={}, mha={method: error})
    assert outcomes["mha"].status == status
    assert log.count(("mha", "repetition")) == (method == "repetition")
    found = summaries(outcomes)
    assert found["mha"].keys() == {"status", "reason"}
    assert found["stock"]["relative"] == {"median": 1.0, "low": 1.0, "high": 1.0}


def test_bad_options_end_the_run() -> None:
    with pytest.raises(UserError, match="no such thing"):
        run(1, stock={}, mha={"prepare": UserError("no such thing")})


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


def test_without_stock_there_is_no_ratio() -> None:
    found = summaries({"stock": Outcome(OUT_OF_MEMORY), "mha": Outcome(seconds={"total": [1.0]})})
    assert found["mha"]["relative"] is None
    assert "rate" not in found["mha"]


class Counting:
    """A workload that notes what is done with it."""

    def __init__(self, variant: str, settings: Any) -> None:
        self.done: list[str] = []

    def prepare(self, cell: Any) -> None:
        self.done.append("prepare")

    def repetition(self) -> dict[str, float]:
        self.done.append("repetition")
        return {"total": float(len(self.done))}


def test_first_of_all_a_rehearsal_then_before_each_cell_a_warm_up() -> None:
    session = Session(Counting, "mha", make_settings())  # type: ignore[arg-type]
    session.prepare(CELL)
    assert session.repetition() == {"total": 5.0}
    done = session.workload.done
    assert done == ["prepare", "repetition", "prepare", "repetition", "repetition"]
    session.repetition()
    assert done[5:] == ["repetition"]
    session.prepare(CELL)
    session.repetition()
    assert done[6:] == ["prepare", "repetition", "repetition"]


def test_a_process_of_its_own_measures_dies_and_starts_again() -> None:
    with workers({"mha": GenerationBenchmark}, make_settings()) as started:
        for _ in range(2):
            found = measure(started, CELL, 1)["mha"]
            assert found.status == OK
            assert found.seconds["total"][0] > found.seconds["reorder"][0] > 0
            assert found.facts["units"] == 1
            (process,) = started["mha"]._pool._processes.values()
            assert process.pid != os.getpid()
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            assert measure(started, CELL, 1)["mha"].status == DIED


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried"),
            OutOfMemoryError,
            "CUDA out of memory.",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OutOfMemoryError, "Default"),
        (MemoryError("bad alloc"), OutOfMemoryError, "bad alloc"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
        (ErrorExit("not like that"), UserError, "not like that"),
    ],
)
def test_what_goes_wrong_is_told_apart(error: BaseException, kind: type, text: str) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(kind, match=text):
        translated_errors(fail)
