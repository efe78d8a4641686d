"""Child processes: logged, followed, explained when they fail, and gone when their parent is gone."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.processes import Child, check_writable


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that children run; a test writes its code."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "child_module"


def write(tmp_path: Path, code: str) -> None:
    (tmp_path / "child_module.py").write_text(textwrap.dedent(code))


def finished(child: Child) -> list[str]:
    lines = []
    while child.running():
        lines += child.new_lines()
        time.sleep(0.01)
    return lines + child.new_lines()


def test_its_lines_are_logged_and_given_once(tmp_path: Path, module: str) -> None:
    write(
        tmp_path,
        """import sys; print("a\\u2028b"); print(*sys.argv[1:], file=sys.stderr); print("no end", end="")""",
    )
    log = tmp_path / "log"
    log.write_text("from before\n")
    child = Child(module, ["two words", "$(x)"], log, threads=1, headline="now")
    assert finished(child) == ["a\u2028b", "two words $(x)", "no end"]
    assert log.read_text() == "from before\n--- now\na\u2028b\ntwo words $(x)\nno end"
    child.check("it")


def test_threads_are_set(tmp_path: Path, module: str) -> None:
    write(
        tmp_path,
        """import os; print(os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"])""",
    )
    assert finished(Child(module, [], tmp_path / "log", threads=3)) == ["3 3"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('x'); raise ValueError('bad number')", "ValueError: bad number"),
        ("import sys; sys.exit('fairseq-mhe: error: no such kind')", "failed: no such kind"),
        (
            "import argparse; p = argparse.ArgumentParser(prog='train.py'); p.error('what?')",
            "train.py: error: what?",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "SIGKILL (the memory may have run out)",
        ),
        ("import sys; print('last words'); sys.exit(3)", "last words"),
    ],
)
def test_a_failure_is_one_line_with_its_reason_and_log(
    tmp_path: Path, module: str, code: str, reason: str
) -> None:
    write(tmp_path, code)
    with pytest.raises(UserError) as failed:
        Child(module, [], tmp_path / "the.log", threads=1).check("training x")
    assert str(failed.value).startswith("training x failed: ")
    assert reason in str(failed.value)
    assert str(tmp_path / "the.log") in str(failed.value)
    assert "\n" not in str(failed.value)


def test_it_dies_with_its_parent_even_by_kill_9(tmp_path: Path, module: str) -> None:
    write(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    parent_code = (
        "import time, pathlib; from fairseq_mhe.runs.processes import Child;"
        f"child = Child({module!r}, [], pathlib.Path('log'), threads=1); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        child = int(wait_for(lambda: (tmp_path / "log").read_text().split("\n")[1]))
        os.kill(child, 0)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert wait_for(lambda: not alive(child))


def alive(pid: int) -> bool:
    """Running, and no zombie that nobody has waited for."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_for(found, seconds: float = 30):  # type: ignore[no-untyped-def] # a test's helper
    """What ``found()`` returns once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if value := found():
                return value
        except (OSError, IndexError):
            pass
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write in"):
        check_writable(tmp_path / "file" / "folder")
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []
