"""Worker processes keep the order, read items lazily, and end with their parent."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.parallel import ordered_map
from tests.fixtures.processes import PYTHON
from tests.fixtures.refusals import refuses


def slow_when_even(number: int) -> int:
    if number % 2 == 0:
        sum(range(10**6))
    return number * number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fail(number: int) -> int:
    raise UserError(f"number {number} is bad")


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_order_and_few_items_are_in_flight(workers: int) -> None:
    assert list(ordered_map(slow_when_even, range(20), workers)) == [n * n for n in range(20)]
    source = iter(range(1000))
    results = ordered_map(slow_when_even, source, workers)
    next(results)
    assert next(source) <= 2 * workers + 1
    results.close()


def test_a_killed_worker_and_a_workers_error_reach_the_caller() -> None:
    with refuses("worker process was killed", "--workers"):
        list(ordered_map(die, range(3), 2))
    with refuses("number 0 is bad"):
        list(ordered_map(fail, range(3), 2))


WORKING = """
import os, signal, time
from fairseq_mhe.prepare.parallel import ordered_map
def work(number):
    time.sleep(0.5)  # a Ctrl-C before the parent waits for a result can leave its lock held
    print(os.getpid(), flush=True)
    signal.pause()
list(ordered_map(work, range(2), 2))
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, ending: signal.Signals) -> None:
    """The parent is killed, or gets a Ctrl-C that does not reach the workers."""
    program = tmp_path / "fairseq-mhe"  # under this name our package loads no fairseq
    program.write_text(WORKING)
    command = [PYTHON, str(program)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert parent.stdout is not None
        assert len({parent.stdout.readline() for _ in range(2)}) == 2  # both are at work
        parent.send_signal(ending)
        # This returns when the last process that can write to the pipe has ended.
        parent.communicate(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
