"""A worker answers whatever happens in it, and its death is an answer too."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from fairseq_mhe.bench.generation import GenerationBenchmark
from fairseq_mhe.bench.worker import DIED, FAILED, OK, OUT_OF_MEMORY, REFUSED, Session, Worker
from fairseq_mhe.common.errors import ErrorExit, UserError
from tests.bench.conftest import make_settings

CELL = {"beam": 2, "length": 4, "source_length": 4, "batch": 1, "dtype": "float32"}


def test_a_process_of_its_own_measures_dies_and_starts_again() -> None:
    worker = Worker(GenerationBenchmark, "mha", make_settings())
    try:
        assert worker.ask("prepare", CELL).status == OK
        first = worker._process.pid
        assert first != os.getpid()
        answer = worker.ask("repetition")
        assert answer.status == OK
        assert answer.value["total"] > answer.value["reorder"] > 0
        facts = worker.ask("facts").value
        assert facts["units"] == 1
        assert facts["peak_bytes"] >= 0
        os.kill(first, signal.SIGKILL)
        answer = worker.ask("repetition")
        assert answer.status == DIED
        assert "memory" in answer.value
        assert worker.ask("prepare", CELL).status == OK
        assert worker._process.pid != first
    finally:
        worker.stop()
    assert not worker._process.is_alive()


def test_a_worker_ends_when_nobody_is_left_to_ask() -> None:
    worker = Worker(GenerationBenchmark, "mha", make_settings())
    assert worker.ask("release").status == OK
    worker._connection.close()
    worker._process.join(timeout=30)
    assert worker._process.exitcode == 0


@pytest.mark.parametrize(
    ("error", "status", "value"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried\nto allocate"),
            OUT_OF_MEMORY,
            "CUDA out of memory. Tried",
        ),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
            ),
            OUT_OF_MEMORY,
            None,
        ),
        (MemoryError("bad alloc"), OUT_OF_MEMORY, "bad alloc"),
        (RuntimeError("shapes differ"), FAILED, None),
        (KeyError("x"), FAILED, None),
        (UserError("not like this"), REFUSED, "not like this"),
        (ErrorExit("not like that"), REFUSED, "not like that"),
    ],
)
def test_what_goes_wrong_is_told_apart(
    error: BaseException, status: str, value: str | None
) -> None:
    session = Session(GenerationBenchmark, "mha", make_settings())

    def fail() -> None:
        raise error

    session.release = fail
    answer = session.answer("release")
    assert answer.status == status
    if value is not None:
        assert answer.value == value
    if status == FAILED:
        assert "Traceback" in answer.value


class Fake:
    """A workload that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def prepare(self, cell) -> None:
        self.done.append("prepare")

    def repetition(self):
        self.done.append("repetition")
        time.sleep(0)
        return {"total": float(len(self.done))}


def test_first_of_all_a_rehearsal_then_before_each_cell_a_warm_up() -> None:
    session = Session(GenerationBenchmark, "mha", make_settings())
    fake = session.workload = Fake()
    session.prepare(CELL)
    assert session.repetition() == {"total": 5.0}
    assert fake.done == ["prepare", "repetition", "prepare", "repetition", "repetition"]
    session.repetition()
    assert fake.done[5:] == ["repetition"]
    session.prepare(CELL)
    session.repetition()
    assert fake.done[6:] == ["prepare", "repetition", "repetition"]
    session.release()  # nothing to give back on a CPU
    session.repetition()
    assert fake.done[9:] == ["repetition"]
