"""What is refused leaves nothing behind that the corrected command stumbles over."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.runs import train as training
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job
from tests.fixtures.small_runs import MADE


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small data folder."""
    return Path(shutil.copytree(MADE / "data", tmp_path / "data"))


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Job, Device]]:
    """What would have been trained."""
    found: list[tuple[Job, Device]] = []

    def train(runs: Sequence[Job], device: Device, *more: object) -> None:
        for run in runs:
            run.training.shared_by(device.workers)
            run.keep()
        found.extend((run, device) for run in runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", train)
    return found


REFUSED = [
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


def status(line: list[str]) -> object:
    """The exit status of a command that our code or argparse may refuse."""
    try:
        return cli.main(line)
    except SystemExit as error:
        return error.code


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_no_run_folder_is_made(
    words: list[str],
    data: Path,
    tmp_path: Path,
    trained: list[tuple[Job, Device]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    line = [*words, "--data", str(data), "--out", str(out)]
    assert status(line) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(f"fairseq-mhe {words[0]}: error: "), error
    assert not list(tmp_path.glob("out/*/config.json"))
    corrected = ["train", "tiny", "mha", "--cpu", "--data", str(data), "--out", str(out)]
    assert cli.main(corrected) == 130
    assert [run.name for run, _ in trained] == ["tiny-mha-seed1"]
    assert (out / "tiny-mha-seed1" / "config.json").is_file()
