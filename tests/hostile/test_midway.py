"""After a kill or a full disk the same command completes its work.

tests/experiments does the same with run-table and quickstart, which it ends by kill -9.
"""

import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common import files
from fairseq_mhe.common.files import read_json
from fairseq_mhe.deploy.translator import Translator
from tests.fixtures.processes import wait_for
from tests.fixtures.small_runs import SMALL

RUN = "tiny-mha-seed1"
TRAIN = ["train", "tiny", "mha", "--updates", "6", "--cpu", "--data", str(SMALL / "data")]


def start(*words: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "fairseq_mhe_cli", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system in memory; skip the test if the user may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"may not mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_training_reports_a_full_disk_and_resumes(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    run = disk / RUN
    with small_disk(disk, "200m"):
        training = start(*TRAIN, "--out", str(disk))
        wait_for(training, lambda: list(run.glob("checkpoints/checkpoint_*_3.pt")))
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(2**16)):
                pass
        error = training.communicate(timeout=300)[1]
        assert training.returncode == 2, error
        message = "No space left on device: make room and give the same command again"
        assert message in error.splitlines()[-1]
        assert not (run / "model.pt").exists()
        export = ["export", str(SMALL / "runs" / RUN), str(disk / "out"), "--format", "huggingface"]
        assert cli.main([*export, "--data", str(SMALL / "data")]) == 2, "Rust's own error"
        (disk / "filler").unlink()
        assert start(*TRAIN, "--out", str(disk)).wait() == 0
        assert (run / "model.pt").is_file()
        log = (run / "train.log").read_text(errors="replace")
        first, second = re.findall(r"--- \S+ \S+ fairseq-train from update (\d+),", log)
        assert (first, int(second) > 0) == ("0", True)


class Killed(BaseException):
    """Ends the command at a chosen moment, as kill -9 would."""


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    """The command that translates and scores the validation set of a trained run."""
    data = shutil.copytree(SMALL / "data", tmp_path / "data")
    run = shutil.copytree(SMALL / "runs" / RUN, tmp_path / RUN)
    return ["evaluate", str(run), "--data", str(data), "--cpu", "--subset", "valid"]


def test_evaluate_killed_anywhere_ends_in_the_same_scores(
    line: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each run ends one renamed file later than the last."""
    run = Path(line[1])
    folder, config = run / "valid", read_json(run / "config.json")

    def texts() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.glob("*.txt")}

    assert cli.main(line) == 0
    expected, written = capsys.readouterr().out, texts()
    assert len((folder / "hypotheses.txt").read_text().splitlines()) == 20
    translated = Translator.search
    again: list[Any] = []

    def search_once(*own: Any) -> Any:
        """Translate once: the model is the same each time."""
        if not again:
            again.append(translated(*own))
        return again[0]

    monkeypatch.setattr(Translator, "search", search_once)
    replace, renamed, ended = files.os.replace, 0, False
    for allowed in range(100):
        shutil.rmtree(folder)
        renamed = 0

        def replace_or_die(source: Path, target: Path, limit: int = allowed) -> None:
            nonlocal renamed
            renamed += 1
            if renamed > limit:
                raise Killed
            replace(source, target)

        monkeypatch.setattr(files.os, "replace", replace_or_die)
        with contextlib.suppress(Killed):
            cli.main(line)
            ended = True
        monkeypatch.setattr(files.os, "replace", replace)
        assert cli.main(line) == 0
        assert capsys.readouterr().out.endswith(expected)
        assert texts() == written
        if ended:
            break
    assert renamed >= 5, "fewer files than evaluate writes"
    assert read_json(run / "config.json") == config
