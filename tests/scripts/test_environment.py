"""scripts/environment.sh finds a Python with the package, or installs it once; Python is a stub."""

import shutil
from pathlib import Path

import pytest

from tests.scripts.conftest import Sandbox, stub

RAN = ["ran", "-P", "-m", "fairseq_mhe_cli", "quickstart"]


def pip_words(sandbox: Sandbox) -> list[str]:
    """Return the words of each pip install; all must run in the repository."""
    lines = [line.partition(": ") for line in sandbox.pip_log.read_text().splitlines()]
    assert {folder for folder, _, _ in lines} == {str(sandbox.repository)}
    return [words for _, _, words in lines]


def refused(sandbox: Sandbox, named: str, *words: str, **environment: str) -> None:
    """Check that the script ends with one line of error, and installs nothing."""
    done = sandbox.run(*words, **environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert named in done.stderr
    assert sandbox.installs() == 0


def test_installs_once_and_again_after_a_change_of_versions(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--out", "two words", "--attention", "$(touch x)", "--limit=5"]
    failed = sandbox.run(*words, PIP_EXIT="1")
    assert (failed.returncode, failed.stdout) == (2, "")
    sandbox.pip_log.unlink()
    for _ in range(2):
        done = sandbox.run("--torch", "cpu", *words)
        assert done.stdout.splitlines() == [*RAN, *words], done.stderr
    torch, package = pip_words(sandbox)
    assert "--index-url https://download.pytorch.org/whl/cpu torch" in torch
    assert package.endswith("-c constraints.txt -e .[experiments,fairseq]")
    for name in ("pyproject.toml", "constraints.txt"):
        (sandbox.repository / name).write_text("torch==3")
        before = sandbox.installs()
        assert sandbox.run("--torch=default").returncode == 0
        assert sandbox.installs() == before + 1


def test_the_first_suitable_python_makes_the_environment_or_else_uv(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    uv = sandbox.bin / "uv"
    fetched = stub(tmp_path / "fetched", "3.12")
    uv.write_text(f'#!/usr/bin/env bash\n"{fetched}" -m venv -- "${{!#}}"\n')
    uv.chmod(0o755)
    for name in ("python3", "python3.12", "python3.11", "python3.13"):
        sandbox.python(name, "3.14")
    assert "with uv" in sandbox.run("--limit", "5").stderr
    assert sandbox.run("--limit", "5").stdout.splitlines() == [*RAN, "--limit", "5"]
    sandbox.python("python3.11", "3.11")
    assert "with python3.11" in sandbox.run("--venv", "my environment").stderr
    assert (sandbox.bin / "my environment" / "pyvenv.cfg").exists()


@pytest.mark.skipif(shutil.which("uv") is not None, reason="uv is on the PATH")
def test_on_python_313_fairseq_is_compiled(sandbox: Sandbox) -> None:
    """Its build imports torch, so torch is installed first, and no build is isolated."""
    for name in ("python3", "python3.12", "python3.11"):
        sandbox.python(name, "3.13")
    done = sandbox.run("--limit", "5", CXX="sh")
    assert done.stdout.splitlines() == [*RAN, "--limit", "5"], done.stderr
    *_, tools, package = pip_words(sandbox)
    assert {"torch", "setuptools>=77,<81", "cython<3.2"} < set(tools.split())
    assert package.endswith("--no-build-isolation -e .[experiments,fairseq]")


def test_the_variable_python_is_obeyed(sandbox: Sandbox, tmp_path: Path) -> None:
    """A relative path counts from the folder of the call, although test.sh changes the folder."""
    sandbox.python("python3", "3.12")
    refused(sandbox, "nowhere", PYTHON="nowhere")
    (sandbox.bin / "my env").mkdir()
    stub(sandbox.bin / "my env" / "python", "3.11")
    done = sandbox.run("-k", "x", script="scripts/test.sh", PYTHON="my env/python")
    assert done.stdout.splitlines() == ["ran", "-P", "-m", "pytest", "-k", "x"], done.stderr
    variables = {"PYTHON": "my env/python", "NOT_INSTALLED": "0"}
    assert sandbox.run(script="data-prep/own_corpus.sh", **variables).stderr == ""
    assert sandbox.installs() == 1


def test_bad_options_and_a_folder_with_other_content_are_refused(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    refused(sandbox, "--torch", "--torch", "gpu")
    refused(sandbox, "--venv", "--venv=")
    mine = sandbox.bin / "mine"
    mine.mkdir()
    (mine / "thesis.tex").touch()
    refused(sandbox, "mine", "--venv=mine")
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]
