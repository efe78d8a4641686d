"""A kind of attention and a recipe of one's own go through run-table; a recipe through hydra."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from fairseq_mhe import cli
from fairseq_mhe.runs.processes import OWN_USER_DIR
from fairseq_mhe.runs.recipes import FOLDER, recipe
from tests.docs.test_attention_page import EXAMPLE, NEW
from tests.fixtures.small_runs import MADE

PACKAGE = Path(cli.__file__).parent


def command(module: str, *words: str, **more: str) -> str:
    """Run a module, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_an_own_kind_by_an_own_recipe_is_in_the_table(tmp_path: Path) -> None:
    user_dir, path = tmp_path / "my_attention", tmp_path / "mine.yaml"
    user_dir.mkdir()
    (user_dir / "__init__.py").write_text(EXAMPLE, encoding="utf-8")
    text = (FOLDER / "tiny.yaml").read_text()
    path.write_text(text.replace("  dropout: 0.1", "  encoder_layers: 1\n  dropout: 0.1"))
    words = [
        "--data",
        str(MADE / "data"),
        "--out",
        str(tmp_path / "out"),
        "--recipe",
        str(path),
    ]
    words += ["--kinds", NEW, "--updates", "2", "--cpu", "--precision", "float32"]
    command("fairseq_mhe.cli", "run-table", *words, "--user-dir", str(user_dir))
    (row,) = json.loads((tmp_path / "out" / "table.json").read_text())
    assert (row["row"], row["attention"], row["layers"], row["updates"]) == ("mine", NEW, 3, 2)
    run = tmp_path / "out" / f"mine-{NEW}-seed1"
    again = ["evaluate", str(run), "--cpu", "--data", str(MADE / "data")]
    assert "BLEU" in command("fairseq_mhe.cli", *again, **{OWN_USER_DIR: str(user_dir)})


def test_hydra_trains_a_recipe_as_its_command_line_does(tmp_path: Path) -> None:
    """Two updates by both of fairseq's programs: the same losses."""
    data = MADE / "data" / "bin"
    words = [str(data), "--user-dir", str(PACKAGE), "--cpu"]
    words += ["--attention", "mhe_mul", "--seed", "1"]
    words += [
        *recipe("tiny").training.shortened(2).words(),
        "--save-dir",
        str(tmp_path / "words"),
    ]
    hydra = ["--config-dir", str(FOLDER), "--config-name", "tiny", f"task.data={data}"]
    hydra += ["+model.attention=mhe_mul", "common.cpu=true", f"common.user_dir={PACKAGE}"]
    hydra += ["optimization.max_update=2", "lr_scheduler.warmup_updates=1"]
    hydra += ["checkpoint.save_interval_updates=1", f"checkpoint.save_dir={tmp_path / 'hydra'}"]
    losses = [
        re.findall(r"[ \"]valid_loss[\" :]+([\d.]+)|valid on .* loss ([\d.]+)", log)
        for log in (
            command("fairseq_cli.train", *words),
            command("fairseq_cli.hydra_train", *hydra, f"hydra.run.dir={tmp_path}"),
        )
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2
