"""Child processes: their log, the reason of a failure, their end with the parent process."""

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.processes import Child, logged_warnings
from tests.fixtures.processes import LOADED, kill, wait_for


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the module that children run; `write` writes its code."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return "child_module"


def write(tmp_path: Path, code: str) -> None:
    (tmp_path / "child_module.py").write_text(textwrap.dedent(code))


def ended(child: Child) -> Child:
    child._process.wait()
    return child


def test_output_is_logged_and_each_line_returned_once(tmp_path: Path, module: str) -> None:
    write(
        tmp_path,
        """
        import os, sys
        print("a\\u2028b")
        print(*sys.argv[1:], file=sys.stderr)
        print(os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"])
        print("no end", end="")
        """,
    )
    log = tmp_path / "log"
    log.write_text("from before\n")
    child = ended(Child(module, ["two words", "$(x)"], log, threads=3, headline="now"))
    assert child.new_lines() + child.new_lines() == ["a\u2028b", "two words $(x)", "3 3"]
    assert log.read_text() == "from before\n--- now\na\u2028b\ntwo words $(x)\n3 3\nno end"
    log.write_text(log.read_text() + " yet\n")
    assert child.new_lines() == ["no end yet"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('x'); raise ValueError('bad number')", "ValueError: bad number"),
        ("import sys; sys.exit('fairseq-mhe: error: no such kind')", "failed: no such kind"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL (the memory may have run out)"),
        ("import sys; print('OSError: bad' + 999 * ' name'); sys.exit(1)", "bad name"),
        ("import torch; torch.save(torch.zeros(10**6), '/dev/full')", "No space left"),
    ],
)
def test_a_failure_is_one_line_with_its_reason_and_log(
    tmp_path: Path, module: str, code: str, reason: str
) -> None:
    # The tests' fork server, which has loaded torch, runs modules of a package fairseq_cli.
    (tmp_path / "fairseq_cli").mkdir()
    (tmp_path / "fairseq_cli" / "__init__.py").touch()
    write(tmp_path / "fairseq_cli", code)
    with pytest.raises(UserError) as failed:
        ended(Child(f"fairseq_cli.{module}", [], tmp_path / "the.log", 1)).check("training x")
    message = str(failed.value)
    assert message.startswith("training x failed: ")
    assert reason in message
    assert str(tmp_path / "the.log") in message
    assert len(message) < 1000


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path, module: str) -> None:
    write(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    parent_code = (
        "import os, time, pathlib; pathlib.Path('parent').write_text(str(os.getpid()));"
        "from fairseq_mhe.runs.processes import Child;"
        f"child = Child({module!r}, [], pathlib.Path('log'), threads=1); time.sleep(600)"
    )
    parent = subprocess.Popen(
        [sys.executable, LOADED, "-c", parent_code], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    log = tmp_path / "log"
    try:
        wait_for(parent, lambda: log.exists() and log.read_text().count("\n") == 2)
        child = os.pidfd_open(int(log.read_text().split("\n")[1]))
        # `parent` is a stand-in: if it is killed, the fork server kills the child, too.
        os.kill(int((tmp_path / "parent").read_text()), signal.SIGKILL)
        assert select.select([child], [], [], 200)[0], "it has not ended"
    finally:
        kill(parent)


def test_warnings_that_fairseq_logs_are_shown_and_nothing_else() -> None:
    lines = [
        "/env/x.py:43: UserWarning: hydra.experimental.initialize() is no longer experimental",
        "2026-11-21 03:58:44 | INFO | fairseq.trainer | Saving checkpoint to /my: WARNING/x",
        "2026-11-21 03:58:44 | WARNING | fairseq.tasks.fairseq_task | 3 samples have invalid sizes",
        "2026-11-21 03:58:45 | ERROR | fairseq.trainer | look: here",
        "2026-11-21 03:58:46 | ERROR | fairseq.trainer | Traceback (most recent call last):",
    ]
    assert logged_warnings(lines) == ["3 samples have invalid sizes", "look: here"]
