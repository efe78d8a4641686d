"""Turns are fair, lack of memory ends one variant only, and ratios are those of the same round."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch

from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.turns import OK, OUT_OF_MEMORY, Session, measure, plain_errors, workers
from fairseq_mhe.common.errors import ErrorExit, UserError
from tests.bench.conftest import make_settings

CELL = {"beam": 2, "length": 4, "source_length": 4, "batch": 1, "dtype": "float32"}


class Scripted:
    """A worker that does as the test says and notes what it was asked, in a shared log.

    A list in the script is what one call after another returns.
    """

    def __init__(self, name: str, log: list, **script: Any) -> None:
        self.name, self.log, self.script = name, log, script

    def call(self, method: str, *arguments: Any) -> Any:
        self.log.append((self.name, method))
        usual = {"prepare": None, "repetition": {"total": 1.0}, "facts": {"units": 6}}
        answer = self.script.get(method, usual[method])
        if isinstance(answer, Exception):
            raise answer
        return answer.pop(0) if isinstance(answer, list) else answer


def run(repetitions: int = 3, **scripts: dict):
    log: list = []
    scripted = {name: Scripted(name, log, **script) for name, script in scripts.items()}
    return measure(scripted, CELL, repetitions, lambda: log.append("turn")), log


def test_each_round_every_variant_once_and_another_first() -> None:
    results, log = run(3, stock={}, mha={}, sha={})
    assert log[:3] == [(name, "prepare") for name in ("stock", "mha", "sha")]
    turns = [entry[0] for entry in log if entry[1] == "repetition"]
    assert turns == ["stock", "mha", "sha", "mha", "sha", "stock", "sha", "stock", "mha"]
    assert all(result["seconds"] == {"total": [1.0] * 3} for result in results.values())
    assert log.count("turn") == 9


@pytest.mark.parametrize("method", ["prepare", "repetition", "facts"])
def test_one_variant_without_memory_leaves_the_others_alone(method: str) -> None:
    fails = {method: MemoryError("no room")}
    results, log = run(2, stock={}, mha=fails)
    assert results["mha"] == {"status": OUT_OF_MEMORY, "reason": "no room"}
    assert (
        log.count(("mha", "repetition")) == {"prepare": 0, "repetition": 1, "facts": 2}[method]
    )
    assert results["stock"]["relative"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    without_stock, _ = run(1, stock=fails, mha={"facts": {}})
    assert without_stock["mha"]["relative"] is None or method == "facts"
    assert "rate" not in without_stock["mha"]


def test_bad_options_end_the_run() -> None:
    with pytest.raises(UserError, match="no such thing"):
        run(1, stock={}, mha={"prepare": UserError("no such thing")})


def test_ratios_are_of_the_same_round() -> None:
    """While the machine is slow for a round, it is slow for all: the ratio stays."""
    stock = [{"total": seconds} for seconds in (2.0, 20.0, 4.0)]
    ours = [
        {"total": seconds, "reorder": part}
        for seconds, part in ((1.0, 0.5), (10.0, 0.5), (2.0, 0.25))
    ]
    results, _ = run(
        3, stock={"repetition": stock}, mha={"repetition": ours, "facts": {"units": 8}}
    )
    mha = results["mha"]
    assert mha["relative"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert mha["median"] == {"total": 2.0, "reorder": 0.5}
    assert mha["quartiles"] == {"total": [1.5, 6.0], "reorder": [0.375, 0.5]}
    assert mha["rate"] == 4.0


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
    session.prepare(CELL)
    session.repetition()
    assert done[5:] == ["repetition", "prepare", "repetition", "repetition"]


def test_a_process_of_its_own_measures_until_it_is_killed() -> None:
    with workers({"stock": GenerationBenchmark}, make_settings()) as started:
        result = measure(started, CELL, 1)["stock"]
        assert result["status"] == OK
        assert result["seconds"]["total"][0] > result["seconds"]["reorder"][0] > 0
        assert result["units"] == 1
        (process,) = started["stock"]._pool._processes.values()
        assert process.pid != os.getpid()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with pytest.raises(UserError, match="the process of stock was killed"):
            measure(started, CELL, 1)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried"),
            MemoryError,
            "CUDA out of memory.",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), MemoryError, "Default"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
        (ErrorExit("not like that"), UserError, "not like that"),
    ],
)
def test_lack_of_memory_is_known_from_other_errors(
    error: BaseException, kind: type, text: str
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(kind, match=text):
        plain_errors(fail)
