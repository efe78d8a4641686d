"""scripts/environment.sh clears no environment but its own, and makes each once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fixtures.sandbox import Sandbox, stub
from tests.scripts.test_environment import RAN


def _without_pip(sandbox: Sandbox, ensurepip: str) -> Path:
    """A user's environment, as uv makes them."""
    mine = sandbox.bin / "mine"
    (mine / "bin").mkdir(parents=True)
    (mine / "pyvenv.cfg").touch()
    (mine / "thesis.tex").touch()
    python = stub(mine / "bin" / "python", "3.12")
    lines = f"""-m pip --version") [[ -e "$0.pip" ]] ;;\n    "-m ensurepip") {ensurepip} ;;"""
    python.write_text(python.read_text().replace('-m pip --version") ;;', lines))
    return mine


def test_an_environment_without_pip_is_given_one_and_kept(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    mine = _without_pip(sandbox, 'touch "$0.pip"')
    done = sandbox.run("--venv", "mine")
    assert done.stdout.splitlines() == RAN, done.stderr
    assert (mine / "thesis.tex").exists()
    assert (mine / "bin" / "python.pip").exists()
    assert "making" not in done.stderr


def test_an_environment_that_cannot_be_given_pip_is_kept(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    mine = _without_pip(sandbox, "exit 1")
    done = sandbox.run("--venv", "mine")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "mine has no pip" in done.stderr
    assert "--venv" in done.stderr
    assert (mine / "thesis.tex").exists()


def test_a_users_environment_without_its_python_is_not_cleared(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    mine = _without_pip(sandbox, "exit 1")
    (mine / "bin" / "python").unlink()
    done = sandbox.run("--venv", "mine")
    assert done.returncode == 2
    assert "is no working virtual environment: remove it, or name another" in done.stderr
    assert (mine / "thesis.tex").exists()


def test_an_environment_that_was_left_half_made_is_made_anew(sandbox: Sandbox) -> None:
    python = sandbox.python("python3", "3.12")
    text = python.read_text()
    killed = 'cp "$0" "$place/bin/python"; touch "$place/bin/half"; kill -9 $PPID'
    python.write_text(text.replace('cp "$0" "$place/bin/python"', killed))
    assert sandbox.run().returncode == -9
    half = sandbox.repository / ".venv" / "bin" / "half"
    assert half.exists()
    said = sandbox.repository / ".venv" / ".fairseq-mhe-installed-anything"
    said.touch()
    python.write_text(text)
    assert sandbox.run().stdout.splitlines() == RAN
    assert not half.exists()
    assert not said.exists()


def test_scripts_that_start_at_once_install_once(sandbox: Sandbox) -> None:
    python = sandbox.python("python3", "3.12")
    slow = python.read_text().replace('exit "${PIP_EXIT', 'sleep 1; exit "${PIP_EXIT')
    python.write_text(slow)
    with ThreadPoolExecutor() as pool:
        done = [each.result() for each in [pool.submit(sandbox.run) for _ in range(2)]]
    assert [each.stdout.splitlines() for each in done] == [RAN, RAN]
    assert sandbox.installs() == 1
    waited = sorted("waiting for another script" in each.stderr for each in done)
    assert waited == [False, True]
