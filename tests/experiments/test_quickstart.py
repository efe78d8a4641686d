"""The quickstart on 100 pairs, by its real command line: prepare, train, average, generate, score,
table.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_mhe.checkpoints.checkpoint import updates_made
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.translation_table import FILES
from tests.fixtures.processes import kill, wait_for
from tests.fixtures.trained import (
    QUICKSTART_UPDATES,
    Finished,
    quickstart,
    quickstart_command,
    run_folder,
    snapshot,
)

KINDS = ("mha", "mhe_mul")
#: Words of lines that must not reach the screen.
NOISE = ("DEBUG", "INFO", "Warning", "warn", "hydra", "Traceback")
#: Values of a table that depend on the clock.
CLOCK = {"tokens_per_second", "sentences_per_second"}


@pytest.mark.early
def test_quickstart_ends_with_the_table(finished: Finished) -> None:
    out = finished.out
    assert finished.returncode == 0, finished.stderr
    table, samples = ((out / name).read_text() for name in ("table.md", "samples.md"))
    _, _, lines = samples.partition("\n\n")
    assert finished.stdout == f"{table}\n{lines}"
    assert samples.count("  - mhe_mul: ") == 5
    assert all((out / name).stat().st_size > 0 for name in FILES)
    rows = {row["attention"]: row for row in json.loads((out / "table.json").read_text())}
    assert tuple(rows) == KINDS
    mha, mhe = rows["mha"], rows["mhe_mul"]
    # tiny: 6 attention sublayers, d_m 128, 4 heads of 32
    assert mha["attention_parameters"] == 6 * 4 * 128**2
    assert mhe["attention_parameters"] == 6 * (3 * 128 * 32 + 3 * 4 * 32 + 128**2)
    assert mha["kv_bytes_per_token"] == 4 * mhe["kv_bytes_per_token"] == 4 * (2 * 2 * 32) * 4
    for name in CLOCK:
        assert min(mha[name], mhe[name]) > 0
    others = [line for line in finished.stderr.splitlines() if not line.startswith("warning: ")]
    noise = [line for line in others if any(word in line for word in NOISE)]
    assert noise == [], "only progress and real warnings reach the screen"


def test_every_sentence_is_trained_on(finished: Finished) -> None:
    """tests/runs/test_every_line.py has the same of translation and scoring."""
    log = (run_folder(finished.out, "mha") / "train.log").read_text()
    first_epoch = json.loads(log.partition("| train | ")[2].partition("\n")[0])
    sentences = float(first_epoch["train_bsz"]) * float(first_epoch["train_num_updates"])
    lines = list(read_lines(finished.out / "data-limit100" / "raw" / "train.de"))
    assert len(lines) % 8, "a multiple of 8 would hide the loss"
    assert sentences == pytest.approx(len(lines), abs=0.5)


def test_each_model_is_the_mean_of_its_last_checkpoints(finished: Finished) -> None:
    out = finished.out
    for kind in KINDS:
        state = read_checkpoint(run_folder(out, kind) / "model.pt")
        assert len(state["averaged_from"]) == 5
        folder = run_folder(out, kind) / "checkpoints"
        sources = [read_checkpoint(folder / name) for name in state["averaged_from"]]
        updates = [updates_made(source) - QUICKSTART_UPDATES for source in sources]
        assert updates == [-4, -3, -2, -1, 0], "the end of an epoch must not replace a checkpoint"
        name = "decoder.layers.0.fc1.weight"
        mean = torch.stack([s["model"][name].double() for s in sources]).mean(0)
        torch.testing.assert_close(state["model"][name].double(), mean, atol=1e-7, rtol=0)


def test_a_second_quickstart_changes_nothing(finished: Finished) -> None:
    out = finished.out
    before = snapshot(out)
    again = quickstart(out)
    assert again.stdout == finished.stdout
    assert snapshot(out) == before


def kill_when(out: Path, condition: Callable[[], object]) -> None:
    """Start a quickstart, and end it by kill -9 as soon as the condition holds."""
    process = subprocess.Popen(quickstart_command(out), stderr=subprocess.DEVNULL)
    try:
        wait_for(process, condition)
    finally:
        kill(process)


def cells(out: Path) -> list[dict[str, Any]]:
    """Return table.json without the values that depend on the clock."""
    entries = json.loads((out / "table.json").read_text())
    return [{name: value for name, value in cell.items() if name not in CLOCK} for cell in entries]


def test_a_quickstart_killed_twice_ends_with_the_same_table(
    finished: Finished, tmp_path: Path
) -> None:
    """Kill it by -9 while it trains, cut a model's last checkpoint in half, and kill it again while
    it translates: weights, translations and table must equal those of the uninterrupted quickstart.
    """
    shutil.copytree(finished.out / "data-limit100", tmp_path / "data-limit100")
    folders = [run_folder(tmp_path, kind) for kind in KINDS]
    interrupted = folders[: cores()]  # a core trains one at a time
    saved = "checkpoints/checkpoint_[0-9]*.pt"
    kill_when(tmp_path, lambda: all(len(list(f.glob(saved))) >= 3 for f in interrupted))
    assert not (folders[0] / "model.pt").exists(), "it was killed too late to prove anything"
    last = folders[0] / "checkpoints" / "checkpoint_last.pt"
    os.truncate(last, last.stat().st_size // 2)
    kill_when(tmp_path, lambda: any(tmp_path.glob("*/scoring.log")))
    trained = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/metrics.json")}
    assert trained, "a training must be finished"

    done = quickstart(tmp_path)
    assert done.returncode == 0, done.stderr
    assert trained == {path: path.stat().st_mtime_ns for path in trained}, "it must not run again"
    assert cells(tmp_path) == cells(finished.out)
    for kind, folder in zip(KINDS, folders, strict=True):
        log = (folder / "train.log").read_text()
        start, *resumed = re.findall(r"^--- .* from update (\d+),", log, re.MULTILINE)
        assert start == "0"
        assert resumed or folder not in interrupted
        assert not {"0", str(QUICKSTART_UPDATES)} & {*resumed}
        uninterrupted = run_folder(finished.out, kind)
        expected = read_checkpoint(uninterrupted / "model.pt")["model"]
        weights = read_checkpoint(folder / "model.pt")["model"]
        assert all(torch.equal(weights[name], value) for name, value in expected.items())
        texts = [run / "test" / "hypotheses.txt" for run in (folder, uninterrupted)]
        assert texts[0].read_text() == texts[1].read_text()
    assert not list(tmp_path.rglob("*.part"))
