"""Every script helps where nothing is installed, and hands all words to its command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from studies.__main__ import STUDIES
from tests.fixtures.processes import python
from tests.fixtures.sandbox import REPOSITORY, Sandbox

SCRIPTS = sorted(
    str(path.relative_to(REPOSITORY))
    for room in ("scripts", "data-prep")
    for path in (REPOSITORY / room).glob("*.sh")
    if path.name not in ("environment.sh", "prepare.sh")
)
COMMANDS = {
    "quickstart.sh": "quickstart",
    "train.sh": "train",
    "evaluate.sh": "evaluate",
    "run_table.sh": "run-table",
    "pretrain.sh": "pretrain",
    "finetune.sh": "finetune",
    "run_nlu_table.sh": "nlu-table",
    "quickstart_lm.sh": "quickstart-lm",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_hands_on_all_words(sandbox: Sandbox, name: str) -> None:
    sandbox.python("python3", "3.12")
    words = ["base", "--data", "two words", "--out", "$(touch x)"]
    done = sandbox.run(*words, script=f"scripts/{name}")
    expected = ["ran", "-P", "-m", "fairseq_mhe.cli", COMMANDS[name], *words]
    assert done.stdout.splitlines() == expected, done.stderr
    assert COMMANDS[name] in cli.SUBCOMMANDS
    assert not list(sandbox.bin.glob("x"))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("version", ["3.12", "3.10"])
def test_help_needs_nothing(sandbox: Sandbox, script: str, version: str) -> None:
    """A Python that cannot serve is no reason not to help."""
    assert (REPOSITORY / script).stat().st_mode & 0o111, "it can be started"
    mine = sandbox.python("python3", version)
    done = sandbox.run("--help", script=script, PYTHON=str(mine))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: bash {sandbox.repository / script} [--venv DIR]")
    about = (REPOSITORY / script).read_text().split("\n")[1].removeprefix("# ")
    assert f"\n{about}\n" in done.stdout
    assert "fairseq-mhe is not installed yet: " in done.stdout
    assert sandbox.installs() == 0
    assert not (sandbox.repository / ".venv").exists()


@pytest.mark.parametrize("script", SCRIPTS)
def test_where_all_is_installed_the_help_is_the_commands(sandbox: Sandbox, script: str) -> None:
    mine = sandbox.python("python3", "3.12")
    done = sandbox.run("--help", script=script, PYTHON=str(mine), NOT_INSTALLED="0")
    assert done.returncode == 0
    usage, _, ran = done.stdout.partition("All other options go to this command:\n\n")
    assert "not installed" not in usage
    words = ran.splitlines()
    assert words[:3] == ["ran", "-P", "-m"]
    assert words[-1] == "--help"


def test_a_commands_real_help_is_shown(environment: Path) -> None:
    script = REPOSITORY / "scripts" / "train.sh"
    line = ["bash", str(script), "--venv", str(environment), "--help"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    line = [sys.executable, "-m", "fairseq_mhe.cli", "train", "--help"]
    own = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert own.startswith("usage: fairseq-mhe train ")
    assert done.stdout.endswith(f"\n\n{own}")


#: What only some of the commands' work needs; the package can be installed without.
_EXTRAS = "submitit ctranslate2 tensorly tensorboard comet"
_HELP_WITHOUT = f"""
import contextlib, importlib.abc, io, runpy, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {_EXTRAS.split()}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
for name in [*sys.modules]:  # of what the fork server has loaded
    if not {{*name.split(".")}}.isdisjoint({_EXTRAS.split()}):
        del sys.modules[name]
        parent, _, last = name.rpartition(".")
        vars(sys.modules.get(parent, sys)).pop(last, None)
for line in sys.argv[1:]:
    sys.argv = [*line.split(), "--help"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code, (line, ended)
    assert said.getvalue().startswith("usage: "), line
"""


def test_every_help_is_there_without_the_extras() -> None:
    """All in one process."""
    modules = {
        module
        for script in SCRIPTS
        for module in re.findall(r"^run -m (\S+)", (REPOSITORY / script).read_text(), re.MULTILINE)
    } - {"pytest"}
    assert {"studies", "fairseq_mhe.cli"} <= modules
    lines = [*modules, *(f"studies {name}" for name in STUDIES)]
    lines += [f"fairseq_mhe.cli {name}" for name in cli.SUBCOMMANDS]
    rooms = [str(REPOSITORY / room) for room in ("", "scripts")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(rooms)}
    done = python(_HELP_WITHOUT, *lines, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_is_handed_on(sandbox: Sandbox, study: str) -> None:
    sandbox.python("python3", "3.12")
    done = sandbox.run(study, "--out", "two words", script="scripts/study.sh")
    assert done.stdout.splitlines()[-3:] == [study, "--out", "two words"]
    text = (REPOSITORY / "scripts" / "study.sh").read_text()
    assert f"\n#   {study} --" in text


def test_what_is_no_study_is_refused(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    refused = sandbox.run("quickstart", script="scripts/study.sh")
    assert refused.returncode == 2
    assert "name a study first: collaborative-curve, uptrain, serving" in refused.stderr
    assert sandbox.installs() == 0


def test_an_exported_cdpath_changes_nothing(sandbox: Sandbox) -> None:
    """A script is often started as scripts/x.sh, which cd would look for along it, and print."""
    sandbox.python("python3", "3.12")
    (sandbox.bin / "elsewhere" / "scripts").mkdir(parents=True)
    done = subprocess.run(
        ["bash", "scripts/train.sh", "base"],
        cwd=sandbox.repository,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHON"},
            "PATH": f"{sandbox.bin}:{os.environ['PATH']}",
            "PIP_LOG": str(sandbox.pip_log),
            "CDPATH": f"{sandbox.bin / 'elsewhere'}:.",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-2:] == ["train", "base"], done.stderr
    assert (sandbox.repository / ".venv" / "pyvenv.cfg").exists()


def test_ci_runs_its_own_repository_for_all_cdpath(tmp_path: Path) -> None:
    for name in ("mine", "elsewhere"):
        for room in (".ci", "scripts"):
            (tmp_path / name / room).mkdir(parents=True)
        for script in ("test.sh", "api.sh"):
            (tmp_path / name / "scripts" / script).write_text(f"echo {name}")
    shutil.copy(REPOSITORY / ".ci" / "run", tmp_path / "mine" / ".ci")
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=tmp_path / "mine",
        env={**os.environ, "CDPATH": str(tmp_path / "elsewhere"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "mine\nmine\n"


@pytest.mark.parametrize("words", [["-o", "x"], ["-ox"], ["--output-dir", "x"]])
def test_api_pages_go_where_they_are_wanted(sandbox: Sandbox, words: list[str]) -> None:
    """Of several -o pdoc takes the last."""
    sandbox.python("python3", "3.12")
    done = sandbox.run(*words, script="scripts/api.sh").stdout.splitlines()
    assert done[3:6] == ["pdoc", "-o", f"{sandbox.repository}/runs/api"]
    assert done[-len(words) :] == words


@pytest.mark.parametrize("words", [["--out="], ["--out", ""]])
def test_the_benchmark_is_not_written_to_the_root(sandbox: Sandbox, words: list[str]) -> None:
    sandbox.python("python3", "3.12")
    done = sandbox.run(*words, script="scripts/benchmark.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "benchmark.sh: error: --out needs a folder\n"


def test_the_benchmark_is_three_one_after_another(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--row", "tiny", "--out", "an out", "--ctranslate2"]
    done = sandbox.run(*words, script="scripts/benchmark.sh")
    calls = [call.split("\n") for call in done.stdout.strip().split("ran\n-P\n-m\n")[1:]]
    assert [call[2] for call in calls] == ["attention", "training", "generation"]
    assert [call[4] for call in calls] == [f"an out/{call[2]}" for call in calls]
    assert ["--ctranslate2" in call and call.index("--row") > 0 for call in calls] == [
        False,
        False,
        True,
    ]
    assert sandbox.pip_log.read_text().rstrip().endswith("-e .[fairseq,convert]")
