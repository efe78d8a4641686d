"""The command ``fairseq-mhe`` itself: its imports, its overview, run folders."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import open_source
from tests.fixtures.small_runs import SMALL, run_of

#: torch's compiler, and the algebra that it needs, take longer to load than torch.
COMPILER = ("torch._dynamo", "sympy")


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        ("--help", ("torch", "fairseq", "matplotlib")),
        ("--version", ("torch", "fairseq", "matplotlib")),
        ("translate --help", ("torch", "fairseq", "matplotlib")),
        ("cost", ("fairseq", *COMPILER)),
        ("cost base mhe_conv", ("fairseq", *COMPILER)),
    ],
)
def test_commands_import_only_what_they_need(words: str, absent: tuple[str, ...]) -> None:
    line = [sys.executable, "-X", "importtime", "-m", "fairseq_mhe_cli", *words.split()]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "fairseq_mhe.common.arguments" in imported
    assert not imported & {*absent}


def test_without_a_subcommand_it_lists_all_and_the_main_ones_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([])
    overview = capsys.readouterr().out
    listed = re.findall(r"^    ([a-z0-9-]+)", overview, re.MULTILINE)
    assert listed[:6] == ["quickstart", "prepare", "train", "run-table", "table", "translate"]
    assert listed == list(cli.SUBCOMMANDS)


def test_a_run_folder_stands_for_its_model_and_its_data(tmp_path: Path) -> None:
    run = Path(shutil.copytree(run_of("mhe_mul"), tmp_path / "run"))
    config = json.loads((run / "config.json").read_text())
    config["surroundings"]["data"] = str(SMALL / "data")
    (run / "config.json").write_text(json.dumps(config))
    assert cli.main(["fold", str(run), str(tmp_path / "folded.pt")]) == 0
    assert set(open_source(tmp_path / "folded.pt").attention.values()) == {"mha"}
    words = ["--sentence", "A lamp.", "--place", "encoder", "--out", str(tmp_path / "map.png")]
    assert cli.main(["attention-map", str(run), *words]) == 0
    assert cli.main(["attention-map", str(run / "model.pt"), *words]) == 2
