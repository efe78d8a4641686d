"""What the command itself does: imports, its overview, and unknown options."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairseq_mhe import cli


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["translate", "--help"]])
def test_commands_without_a_model_import_neither_torch_nor_fairseq(words: list[str]) -> None:
    line = [sys.executable, "-X", "importtime", "-m", "fairseq_mhe.cli", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "fairseq_mhe.common.arguments" in imported
    assert not imported & {"torch", "fairseq", "matplotlib"}


def test_alone_it_prints_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    overview = capsys.readouterr().out
    assert all(name in overview for name in cli.SUBCOMMANDS)


def test_an_unknown_option_is_answered_by_the_subcommand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["params", "--vocabsize", "10"])
    error = capsys.readouterr().err
    assert error.startswith("usage: fairseq-mhe params ")
    assert "unrecognized arguments: --vocabsize 10; did you mean --vocab-size?" in error
