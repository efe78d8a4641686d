"""train.sh, evaluate.sh and run_table.sh install the package and hand all words to their subcommand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fairseq_mhe import cli
from tests.experiments.test_quickstart_script import SCRIPT, Sandbox

SCRIPTS = {"train.sh": "train", "evaluate.sh": "evaluate", "run_table.sh": "run-table"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_hands_on_all_words(tmp_path: Path, name: str) -> None:
    sandbox = Sandbox(tmp_path)
    sandbox.python("python3", "3.12")
    script = sandbox.repository / "scripts" / name
    script.write_text(SCRIPT.with_name(name).read_text())
    words = ["base", "--data", "two words", "--out", "$(touch x)"]
    done = subprocess.run(
        ["bash", script, *words],
        cwd=sandbox.bin,
        env={"PATH": f"{sandbox.bin}:/usr/bin:/bin", "PIP_LOG": str(sandbox.pip_log)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["ran", SCRIPTS[name], *words], done.stderr
    assert SCRIPTS[name] in cli.SUBCOMMANDS
    assert not list(sandbox.bin.glob("x"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_help_names_only_options_that_there_are(name: str) -> None:
    script = SCRIPT.with_name(name)
    assert script.stat().st_mode & 0o111, "it can be started"
    done = subprocess.run(["bash", script, "--help"], capture_output=True, text=True, check=True)
    assert f"usage: bash scripts/{name}" in done.stdout
    parser = cli.build_parser(SCRIPTS[name])
    known = parser._subparsers._group_actions[0].choices[SCRIPTS[name]]._option_string_actions  # type: ignore[union-attr]
    named = {
        line.split()[0].rstrip(",") for line in done.stdout.splitlines() if line.startswith("  --")
    }
    assert named - {"--venv"} <= set(known)


def test_every_study_is_handed_on_and_nothing_else(tmp_path: Path) -> None:
    script = SCRIPT.with_name("study.sh")
    assert script.stat().st_mode & 0o111, "it can be started"
    usage = subprocess.run(
        ["bash", script, "--help"], capture_output=True, text=True, check=True
    ).stdout
    studies = usage.split("study.sh ")[1].split(" ")[0].split("|")
    assert set(studies) <= set(cli.SUBCOMMANDS)
    assert "gap-study" in studies
    sandbox = Sandbox(tmp_path)
    sandbox.python("python3", "3.12")
    copy = sandbox.repository / "scripts" / "study.sh"
    copy.write_text(script.read_text())

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{sandbox.bin}:/usr/bin:/bin", "PIP_LOG": str(sandbox.pip_log)}
        return subprocess.run(
            ["bash", copy, *words], env=environment, capture_output=True, text=True, check=False
        )

    for study in studies:
        assert f"\n  {study} --" in usage
        assert run(study, "--out", "two words").stdout.splitlines() == [
            "ran",
            study,
            "--out",
            "two words",
        ]
    refused = run("quickstart")
    assert refused.returncode == 2
    assert (
        "name a study first: collaborative-curve, uptrain, compare-engines or gap-study"
        in refused.stderr
    )
