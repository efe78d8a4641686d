"""scripts/environment.sh finds a Python, or installs once; a stub stands for Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fixtures.sandbox import Sandbox, stub

RAN = ["ran", "-P", "-m", "fairseq_mhe.cli", "quickstart"]


def test_it_installs_once_and_hands_on_all_words(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--out", "two words", "--attention", "$(touch x)", "--limit=5"]
    for _ in range(2):
        done = sandbox.run(*words)
        assert done.stdout.splitlines() == [*RAN, *words], done.stderr
    assert sandbox.installs() == 1
    where, _, what = sandbox.pip_log.read_text().partition(": ")
    assert where == str(sandbox.repository)
    assert what.rstrip().endswith("-c constraints.txt -e .[fairseq]")
    assert (sandbox.repository / ".venv" / "pyvenv.cfg").exists()


def _pip_words(sandbox: Sandbox) -> list[str]:
    return [line.partition(": ")[2] for line in sandbox.pip_log.read_text().splitlines()]


without_gpu = pytest.mark.skipif(
    any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists(), reason="a GPU is here"
)
CPU_INDEX = "--index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch"


@without_gpu
def test_without_a_gpu_torch_comes_without_cuda(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    sandbox.graphics.write_text("#!/bin/sh\nexit 9\n")
    done = sandbox.run("--limit", "5")
    assert done.stdout.splitlines() == [*RAN, "--limit", "5"], done.stderr
    assert "no NVIDIA device is here (--torch default: as published, with CUDA)" in done.stderr
    torch, package = _pip_words(sandbox)
    assert torch.endswith(CPU_INDEX)
    assert "--no-deps" in torch
    assert "--timeout 15 --retries 1" in torch
    assert package.endswith("-c constraints.txt -e .[fairseq]")


@without_gpu
def test_an_index_that_cannot_be_reached_is_no_failure(sandbox: Sandbox) -> None:
    python = sandbox.python("python3", "3.12")
    sandbox.graphics.unlink()
    text = python.read_text()
    python.write_text(text.replace('exit "${PIP_EXIT:-0}"', '[[ "$*" != *index-url* ]]; exit'))
    done = sandbox.run()
    assert done.stdout.splitlines() == RAN
    assert "torch for CPUs cannot be had from there, see above" in done.stderr
    assert sandbox.installs() == 2


@pytest.mark.parametrize("words", [["--torch", "cpu"], ["--torch=cpu"]])
def test_torch_can_be_chosen(sandbox: Sandbox, words: list[str]) -> None:
    sandbox.python("python3", "3.12")
    assert sandbox.run(*words, "--limit", "5").stdout.splitlines() == [*RAN, "--limit", "5"]
    assert _pip_words(sandbox)[0].endswith(CPU_INDEX)


@pytest.mark.parametrize("words", [[], ["--torch", "default"]])
def test_torch_as_published(sandbox: Sandbox, words: list[str]) -> None:
    sandbox.python("python3", "3.12")
    if words:
        sandbox.graphics.unlink()
    assert sandbox.run(*words).returncode == 0
    assert len(_pip_words(sandbox)) == 1


def test_torch_that_is_there_stays(sandbox: Sandbox) -> None:
    python = sandbox.python("python3", "3.12")
    text = python.read_text()
    there = '"-P -c "*torch) exit 0 ;;\n    "-P -c "*)'
    python.write_text(text.replace('"-P -c "*)', there, 1))
    assert sandbox.run("--torch", "cpu").returncode == 0
    assert len(_pip_words(sandbox)) == 1


def test_another_torch_is_refused(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    for words in (["--torch", "gpu"], ["--torch"]):
        done = sandbox.run(*words)
        assert done.returncode == 2
        assert "auto, cpu" in done.stderr
    assert sandbox.installs() == 0


def test_torch_is_not_chosen_again(sandbox: Sandbox) -> None:
    """The same command again goes on; another choice would be ignored, and is refused."""
    python = sandbox.python("python3", "3.12")
    for _ in range(2):
        assert sandbox.run("--torch", "default").stdout.splitlines() == RAN
    assert sandbox.run().stdout.splitlines() == RAN
    environment = sandbox.repository / ".venv" / "bin" / "python"
    for mine, more in ((environment, {}), (python, {"PYTHON": str(python), "NOT_INSTALLED": "0"})):
        done = sandbox.run("--torch=cpu", **more)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert f"--torch cpu: fairseq-mhe is installed already ({mine}): remove" in done.stderr
    assert sandbox.installs() == 1


def test_it_installs_again_where_the_environments_python_is_gone(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.11")
    sandbox.run()
    (sandbox.repository / ".venv" / "bin" / "python").unlink()
    assert sandbox.run().returncode == 0
    assert sandbox.installs() == 2


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_it_installs_again_when_the_versions_change(sandbox: Sandbox, name: str) -> None:
    sandbox.python("python3", "3.11")
    sandbox.run()
    (sandbox.repository / name).write_text("torch==3")
    assert sandbox.run().returncode == 0
    assert sandbox.installs() == 2


def test_a_failed_installation_is_said_and_tried_again(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.11")
    failed = sandbox.run(PIP_EXIT="1")
    assert failed.returncode == 2
    assert "the installation failed" in failed.stderr
    assert "ran" not in failed.stdout
    assert sandbox.run().stdout.splitlines() == RAN


def test_another_python3_is_passed_over_for_a_good_one(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.14")
    sandbox.python("python3.12", "3.12")
    done = sandbox.run("--venv", "my environment")
    assert "with python3.12 (3.12)" in done.stderr
    assert (sandbox.bin / "my environment" / "pyvenv.cfg").exists()


def _only_other_pythons(sandbox: Sandbox) -> None:
    for name, version in (("python3", "3.13"), ("python3.12", "3.10"), ("python3.11", "3.13")):
        sandbox.python(name, version)


@pytest.mark.skipif(shutil.which("uv") is not None, reason="uv is on the PATH")
def test_no_good_python_is_one_line(sandbox: Sandbox) -> None:
    _only_other_pythons(sandbox)
    done = sandbox.run()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or 3.12 is needed, and python3 is 3.13: install uv (http" in done.stderr
    assert "'pyenv install 3.12' or 'conda create -n py312 python=3.12'" in done.stderr
    assert not (sandbox.repository / ".venv").exists()


def _uv(sandbox: Sandbox, fetched: Path) -> None:
    """Put a uv on the PATH that knows one command; it copies the Python ``fetched``."""
    known = "venv --seed --allow-existing --python 3.12 -- "
    uv = sandbox.bin / "uv"
    uv.write_text(
        f'#!/usr/bin/env bash\n[[ "$*" == "{known}"* ]] && "{fetched}" -m venv -- "${{!#}}"\n'
    )
    uv.chmod(0o755)


def test_uv_fetches_a_python_where_no_good_one_is(sandbox: Sandbox, tmp_path: Path) -> None:
    _only_other_pythons(sandbox)
    _uv(sandbox, stub(tmp_path / "fetched", "3.12"))
    done = sandbox.run("--venv", "my environment", "--limit", "5")
    assert done.stdout.splitlines() == [*RAN, "--limit", "5"], done.stderr
    assert "with uv (3.12)" in done.stderr
    assert (sandbox.bin / "my environment" / "pyvenv.cfg").exists()
    assert sandbox.run("--venv", "my environment").stderr == ""
    assert sandbox.installs() == 1


def test_a_uv_that_fails_is_explained_and_tried_again(sandbox: Sandbox, tmp_path: Path) -> None:
    _only_other_pythons(sandbox)
    _uv(sandbox, stub(tmp_path / "fetched", "3.12"))
    failed = sandbox.run(NO_VENV="1")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "uv cannot make a virtual environment of Python 3.12 in " in failed.stderr
    assert sandbox.run().stdout.splitlines() == RAN


def test_uv_is_not_asked_where_a_good_python_is(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.13")
    sandbox.python("python3.11", "3.11")
    sandbox.python("python3.12", "3.13")
    _uv(sandbox, Path("nowhere"))
    assert "with python3.11 (3.11)" in sandbox.run().stderr


def test_the_python_that_is_named_is_taken(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.python("python3", "3.12")
    mine = stub(tmp_path / "my python", "3.11")
    done = sandbox.run(PYTHON=str(mine))
    assert f"with {mine} (3.11)" in done.stderr
    assert done.stdout.splitlines() == RAN
    assert sandbox.run(PYTHON=str(mine)).stderr == ""
    assert sandbox.installs() == 1


def test_a_relative_python_is_that_of_the_current_folder(sandbox: Sandbox) -> None:
    """Also where the script starts it elsewhere."""
    (sandbox.bin / "env").mkdir()
    mine = stub(sandbox.bin / "env" / "python", "3.12")
    more = {"PYTHON": "env/python", "NOT_INSTALLED": "0"}
    done = sandbox.run("-k", "x", script="scripts/test.sh", **more)
    assert done.stdout.splitlines() == ["ran", "-P", "-m", "pytest", "-k", "x"], done.stderr
    assert f"with {mine} (3.12)" in sandbox.run(PYTHON="env/python").stderr


def test_the_python_that_is_named_is_refused_where_it_cannot_serve(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """In one line, before anything is fetched; there is a good one on the PATH."""
    sandbox.python("python3", "3.12")
    for mine, is_of in ((stub(tmp_path / "old", "3.10"), "3.10"), ("nowhere", "no working Python")):
        done = sandbox.run(PYTHON=str(mine))
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"Python 3.11 or 3.12 is needed, and $PYTHON ({mine}) is {is_of}" in done.stderr
        assert not (sandbox.repository / ".venv").exists()
    assert sandbox.installs() == 0


def test_an_environment_of_another_python_than_the_named_one_is_refused(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.python("python3", "3.12")
    sandbox.run()
    done = sandbox.run(PYTHON=str(stub(tmp_path / "mine", "3.11")))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert ".venv is of another Python than $PYTHON" in done.stderr


@pytest.mark.parametrize("script", ["scripts/quickstart.sh", "data-prep/own_corpus.sh"])
@pytest.mark.parametrize("named", [True, False])
def test_a_python_that_has_the_package_needs_no_environment(
    sandbox: Sandbox, script: str, named: bool
) -> None:
    mine = sandbox.python("python3", "3.12")
    more = {"PYTHON": str(mine)} if named else {}
    done = sandbox.run("--out", "x", script=script, NOT_INSTALLED="0", **more)
    assert done.stdout.splitlines()[-2:] == ["--out", "x"], done.stderr
    assert done.stderr == ""
    assert sandbox.installs() == 0
    assert not (sandbox.repository / ".venv").exists()


def test_an_environment_of_a_wrong_version_is_refused(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    sandbox.run()
    (sandbox.repository / "pyproject.toml").write_text("new")
    stub(sandbox.repository / ".venv" / "bin" / "python", "3.9")
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


def test_an_empty_name_is_no_environment(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    for words in (["--venv="], ["--venv", ""]):
        done = sandbox.run(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "--venv needs a folder" in done.stderr
    assert sandbox.installs() == 0


def test_no_venv_module_is_explained(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    done = sandbox.run(NO_VENV="1")
    assert done.returncode == 2
    assert "apt install python3-venv" in done.stderr
