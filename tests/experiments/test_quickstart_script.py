"""scripts/quickstart.sh finds a Python, installs once, and hands all else to fairseq-mhe; a stub stands for Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "quickstart.sh"
#: A Python of some version: `-m venv` copies it into the environment with a fairseq-mhe, `-m pip`
#: notes its words.
STUB = r"""#!/usr/bin/env bash
case "$*" in
    -c*) echo "$VERSION" ;;
    "-m venv "*)
        [[ -z "${NO_VENV:-}" ]] || exit 1
        place="${!#}"
        mkdir -p "$place/bin"
        touch "$place/pyvenv.cfg"
        cp "$0" "$place/bin/python"
        printf '#!/usr/bin/env bash\nprintf "%%s\\n" "ran" "$@"\n' > "$place/bin/fairseq-mhe"
        chmod +x "$place/bin/fairseq-mhe"
        ;;
    "-m pip --version") ;;
    "-m pip install"*)
        echo "$PWD: $*" >> "$PIP_LOG"
        exit "${PIP_EXIT:-0}"
        ;;
esac
"""


class Sandbox:
    """A copy of the script in a repository of its own, and a PATH with stubs only."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "a clone"
        self.bin = folder / "bin"
        self.pip_log = folder / "pip.log"
        (self.repository / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for script in (SCRIPT, SCRIPT.with_name("environment.sh")):
            (self.repository / "scripts" / script.name).write_text(script.read_text())
        for name in ("setup.py", "constraints.txt"):
            (self.repository / name).write_text(name)

    def python(self, name: str, version: str) -> None:
        path = self.bin / name
        path.write_text(STUB.replace("$VERSION", version))
        path.chmod(0o755)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PIP_LOG": str(self.pip_log),
            "HOME": str(self.bin),
        }
        script = str(self.repository / "scripts" / "quickstart.sh")
        return subprocess.run(
            ["bash", script, *words],
            cwd=self.bin,
            env={**env, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def installs(self) -> int:
        return len(self.pip_log.read_text().splitlines()) if self.pip_log.exists() else 0


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def test_it_installs_once_and_hands_on_all_words(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--out", "two words", "--attention", "$(touch x)", "--limit=5"]
    for _ in range(2):
        done = sandbox.run(*words)
        assert done.stdout.splitlines() == ["ran", "quickstart", *words], done.stderr
    assert sandbox.installs() == 1
    where, _, what = sandbox.pip_log.read_text().partition(": ")
    assert where == str(sandbox.repository)
    assert what.rstrip().endswith("-c constraints.txt -e .[fairseq]")
    assert (sandbox.repository / ".venv" / "pyvenv.cfg").exists()


def test_it_installs_again_when_the_versions_change(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.11")
    sandbox.run()
    (sandbox.repository / "constraints.txt").write_text("torch==3")
    assert sandbox.run().returncode == 0
    assert sandbox.installs() == 2


def test_a_failed_installation_is_said_and_tried_again(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.11")
    failed = sandbox.run(PIP_EXIT="1")
    assert failed.returncode == 2
    assert "the installation failed" in failed.stderr
    assert "ran" not in failed.stdout
    assert sandbox.run().stdout.splitlines() == ["ran", "quickstart"]


def test_another_python3_is_passed_over_for_a_good_one(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.14")
    sandbox.python("python3.12", "3.12")
    done = sandbox.run("--venv", "my environment")
    assert "with python3.12 (3.12)" in done.stderr
    assert (sandbox.bin / "my environment" / "pyvenv.cfg").exists()


def test_no_good_python_is_one_line(sandbox: Sandbox) -> None:
    for name, version in (("python3", "3.10"), ("python3.12", "3.10"), ("python3.11", "3.13")):
        sandbox.python(name, version)
    done = sandbox.run()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or 3.12 is needed, and python3 is 3.10" in done.stderr
    assert not (sandbox.repository / ".venv").exists()


def test_an_environment_of_another_python_is_refused(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    sandbox.run()
    (sandbox.repository / "setup.py").write_text("new")
    (sandbox.repository / ".venv" / "bin" / "python").write_text(STUB.replace("$VERSION", "3.9"))
    done = sandbox.run()
    assert done.returncode == 2
    assert "is of Python 3.9" in done.stderr


def test_a_folder_that_is_no_environment_is_not_touched(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    mine = sandbox.bin / "mine"
    mine.mkdir()
    (mine / "thesis.tex").touch()
    done = sandbox.run("--venv=mine")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]


def test_no_venv_module_is_explained(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    done = sandbox.run(NO_VENV="1")
    assert done.returncode == 2
    assert "apt install python3-venv" in done.stderr


def test_help_needs_nothing(sandbox: Sandbox) -> None:
    done = sandbox.run("--help")
    assert done.returncode == 0
    assert "usage: bash scripts/quickstart.sh" in done.stdout
    assert not (sandbox.repository / ".venv").exists()
