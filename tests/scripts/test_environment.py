"""scripts/environment.sh finds a Python with the package, or installs it once; Python is a stub."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.scripts.conftest import Sandbox, stub

RAN = ["ran", "-P", "-m", "fairseq_mhe_cli", "quickstart"]
CPU_INDEX = "--index-url https://download.pytorch.org/whl/cpu torch"
without_gpu = pytest.mark.skipif(
    any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists(), reason="a GPU is here"
)


def pip_words(sandbox: Sandbox) -> list[str]:
    """Return the words of each pip install; all must run in the repository."""
    lines = [line.partition(": ") for line in sandbox.pip_log.read_text().splitlines()]
    assert {folder for folder, _, _ in lines} == {str(sandbox.repository)}
    return [words for _, _, words in lines]


def refused(sandbox: Sandbox, message: str, *words: str, **environment: str) -> None:
    """Check that the script ends with one line of error, and installs nothing."""
    done = sandbox.run(*words, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sandbox.installs() == 0


def make_uv(path: Path, fetched: Path) -> Path:
    """Write a uv that knows only environment.sh's command, and copies ``fetched``."""
    known = "venv --seed --python 3.12 -- "
    path.write_text(
        f'#!/usr/bin/env bash\n[[ "$*" == "{known}"* ]] && "{fetched}" -m venv -- "${{!#}}"\n'
    )
    path.chmod(0o755)
    return path


def only_other_pythons(sandbox: Sandbox, newest: str = "3.14") -> None:
    for name, version in (
        *(("python3", newest), ("python3.12", "3.10")),
        *(("python3.11", "3.14"), ("python3.13", "3.10")),
    ):
        sandbox.python(name, version)


def test_installs_once_and_again_after_a_change_of_versions(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--out", "two words", "--attention", "$(touch x)", "--limit=5"]
    failed = sandbox.run(*words, PIP_EXIT="1")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "the installation failed" in failed.stderr
    sandbox.pip_log.unlink()
    for _ in range(2):
        done = sandbox.run(*words)
        assert done.stdout.splitlines() == [*RAN, *words], done.stderr
    (package,) = pip_words(sandbox)
    assert package.endswith("-c constraints.txt -e .[experiments,fairseq]")
    assert (sandbox.repository / ".venv" / "pyvenv.cfg").exists()
    for name in ("pyproject.toml", "constraints.txt"):
        before = sandbox.installs()
        (sandbox.repository / name).write_text("torch==3")
        assert sandbox.run().returncode == 0
        assert sandbox.installs() == before + 1


@without_gpu
@pytest.mark.parametrize(
    ("words", "gpu", "installs"),
    [
        ([], True, 1),
        ([], False, 2),
        (["--torch", "default"], False, 1),
        (["--torch", "cpu"], True, 2),
        (["--torch=cpu"], True, 2),
    ],
)
def test_without_a_gpu_torch_has_no_cuda_and_the_option_chooses(
    sandbox: Sandbox, words: list[str], gpu: bool, installs: int
) -> None:
    sandbox.python("python3", "3.12")
    if not gpu:
        sandbox.graphics.write_text("#!/bin/sh\nexit 9\n")
    assert sandbox.run(*words, "--limit", "5").stdout.splitlines() == [*RAN, "--limit", "5"]
    *torch, package = pip_words(sandbox)
    assert len(torch) == installs - 1
    assert all(CPU_INDEX in line for line in torch)
    assert package.endswith("-c constraints.txt -e .[experiments,fairseq]")


@without_gpu
def test_where_torch_without_cuda_cannot_be_downloaded_one_line_says_what_follows(
    sandbox: Sandbox,
) -> None:
    """pip's own lines look fatal, though the installation goes on with PyPI's torch."""
    python = sandbox.python("python3", "3.12")
    fails = '[[ "$*" != *index-url* ]] || { echo ResolutionImpossible >&2; exit 1; }; exit'
    python.write_text(python.read_text().replace('exit "${PIP_EXIT:-0}"', fails))
    done = sandbox.run("--torch", "cpu", "--limit", "5")
    assert done.stdout.splitlines() == [*RAN, "--limit", "5"]
    assert "ResolutionImpossible" not in done.stderr
    assert "torch without CUDA cannot be downloaded" in done.stderr.splitlines()[-1]


def test_bad_options_are_refused(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    for words in (["--torch", "gpu"], ["--torch"]):
        refused(sandbox, "--torch needs cpu or default", *words)
    for words in (["--venv="], ["--venv", ""]):
        refused(sandbox, "--venv needs a folder", *words)


def test_scripts_that_start_together_install_once(sandbox: Sandbox) -> None:
    python = sandbox.python("python3", "3.12")
    slow = python.read_text().replace('exit "${PIP_EXIT', 'sleep 1; exit "${PIP_EXIT')
    python.write_text(slow)
    with ThreadPoolExecutor() as pool:
        done = [each.result() for each in [pool.submit(sandbox.run) for _ in range(2)]]
    assert [each.stdout.splitlines() for each in done] == [RAN, RAN]
    assert sandbox.installs() == 1


def test_the_first_suitable_python_makes_the_environment(sandbox: Sandbox) -> None:
    """uv is not used if a Python is suitable."""
    for name, version in (("python3", "3.13"), ("python3.12", "3.13"), ("python3.11", "3.11")):
        sandbox.python(name, version)
    make_uv(sandbox.bin / "uv", Path("nowhere"))
    done = sandbox.run("--venv", "my environment")
    assert "with python3.11" in done.stderr
    assert (sandbox.bin / "my environment" / "pyvenv.cfg").exists()


@pytest.fixture
def without_uv() -> None:
    if shutil.which("uv"):
        pytest.skip("uv is on the PATH")


@pytest.mark.usefixtures("without_uv")
@pytest.mark.parametrize(
    ("newest", "more"),
    [("3.14", {}), ("3.13", {"CXX": "no-compiler"}), ("3.13", {"NO_HEADERS": "1"})],
)
def test_without_python_network_and_compiler_one_line_says_what_to_install(
    sandbox: Sandbox, newest: str, more: dict[str, str]
) -> None:
    only_other_pythons(sandbox, newest)
    done = sandbox.run(**more)
    _, error = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert "install Python 3.12" in error
    assert sandbox.installs() == 0
    assert not (sandbox.repository / ".venv").exists()


@pytest.mark.parametrize("on_the_path", [True, False])
def test_uv_fetches_a_python_if_none_is_suitable(
    sandbox: Sandbox, tmp_path: Path, on_the_path: bool
) -> None:
    """uv is on the PATH, or PyPI's is used; Python 3.13 and a compiler come later."""
    only_other_pythons(sandbox, "3.13")
    place = sandbox.bin / "uv" if on_the_path else tmp_path / "of PyPI"
    uv = make_uv(place, stub(tmp_path / "fetched", "3.12"))
    done = sandbox.run("--limit", "5", PYPI_UV=str(uv))
    assert done.stdout.splitlines() == [*RAN, "--limit", "5"], done.stderr
    assert "with uv" in done.stderr
    assert sandbox.run().stderr == ""
    assert sandbox.installs() == 1


@pytest.mark.usefixtures("without_uv")
@pytest.mark.parametrize("named", [True, False])
def test_on_python_313_fairseq_is_compiled(sandbox: Sandbox, named: bool) -> None:
    """Its build imports torch, so torch is installed first, and no build is isolated."""
    only_other_pythons(sandbox, "3.13")
    more = {"PYTHON": "python3"} if named else {}
    done = sandbox.run("--limit", "5", CXX="sh", **more)
    assert done.stdout.splitlines() == [*RAN, "--limit", "5"], done.stderr
    *_, tools, package = pip_words(sandbox)
    assert {"torch", "setuptools>=77,<81", "cython<3.2"} < set(tools.split())
    assert package.endswith("--no-build-isolation -e .[experiments,fairseq]")
    assert sandbox.run(CXX="sh", **more).stderr == ""


def test_the_variable_python_is_obeyed(sandbox: Sandbox, tmp_path: Path) -> None:
    """A relative path counts from the folder of the call, although test.sh changes the folder."""
    sandbox.python("python3", "3.12")
    for other in (str(stub(tmp_path / "old", "3.10")), "nowhere"):
        refused(sandbox, f"$PYTHON ({other}) is no Python", PYTHON=other)
    (sandbox.bin / "my env").mkdir()
    mine = stub(sandbox.bin / "my env" / "python", "3.11")
    for _ in range(2):
        done = sandbox.run("-k", "x", script="scripts/test.sh", PYTHON="my env/python")
        assert done.stdout.splitlines() == ["ran", "-P", "-m", "pytest", "-k", "x"], done.stderr
    assert sandbox.installs() == 1
    assert f"with {mine}" in sandbox.run("--venv", "new", PYTHON="my env/python").stderr


@pytest.mark.parametrize("script", ["scripts/quickstart.sh", "data-prep/own_corpus.sh"])
@pytest.mark.parametrize("named", [True, False])
def test_a_python_with_the_package_needs_no_environment(
    sandbox: Sandbox, script: str, named: bool
) -> None:
    mine = sandbox.python("python3", "3.12")
    more = {"PYTHON": str(mine)} if named else {}
    done = sandbox.run("--out", "x", script=script, NOT_INSTALLED="0", **more)
    assert done.stdout.splitlines()[-2:] == ["--out", "x"], done.stderr
    assert done.stderr == ""
    assert not (sandbox.repository / ".venv").exists()


@pytest.mark.parametrize("version", ["3.9", None])
def test_a_folder_with_other_content_is_refused(sandbox: Sandbox, version: str | None) -> None:
    """It holds an environment of an old Python, or no environment at all."""
    sandbox.python("python3", "3.12")
    mine = sandbox.bin / "mine"
    (mine / "bin").mkdir(parents=True)
    (mine / "thesis.tex").touch()
    if version:
        stub(mine / "bin" / "python", version)
    refused(
        sandbox, "mine has no Python 3.11, 3.12, 3.13: remove it, or name another", "--venv=mine"
    )
    assert {path.name for path in mine.iterdir()} == {"bin", "thesis.tex"}
