"""A rejected command leaves nothing behind that the corrected command would reject."""

import shutil
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.runs import train as training
from fairseq_mhe.runs.job import Job
from tests.fixtures.small_runs import SMALL

BAD_COMMANDS = [
    ["train", "tiny", "mha", "--processes", "3"],
    ["train", "tiny", "mha", "--evaluate", "--subset", "nothing", "--cpu"],
    ["train", "tiny", "mha", "--bleu-tokenizer", "char", "--cpu"],
    ["train", "mha", "--cpu"],
    ["train", "tiny", "mha", "--recipe", "mine.yaml", "--cpu"],
    ["run-table", "--rows", "tiny", "--finished-only"],
    ["run-table", "--rows", "tiny", "--updates", "1.5"],
    ["run-table", "--kinds", "mha,nonsense"],
    ["run-table", "--rows", "tiny", "--seeds", "4294967296", "--cpu"],
    ["run-table", "--rows", "tiny", "--gpus", "64"],
]


@pytest.mark.parametrize("words", BAD_COMMANDS, ids=" ".join)
def test_a_rejected_command_creates_no_run_folder(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(job: Job, *more: object) -> None:
        job.write_config()
        job.checkpoints.mkdir()
        (job.checkpoints / "checkpoint_last.pt").touch()  # otherwise the folder is freed
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "start", start)
    out, data = tmp_path / "out", shutil.copytree(SMALL / "data", tmp_path / "data")
    folders = ["--data", str(data), "--out", str(out)]
    with pytest.raises(SystemExit, match="2"):
        sys.exit(cli.main([*words, *folders]))
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(f"fairseq-mhe {words[0]}: error: "), error
    assert not list(out.glob("*/config.json"))
    assert cli.main(["train", "tiny", "mha", "--cpu", *folders]) == 130
    assert [path.parent.name for path in out.glob("*/config.json")] == ["tiny-mha-seed1"]
