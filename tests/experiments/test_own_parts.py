"""run-table with a user's own kind and recipe; fairseq-hydra-train with our recipes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.runs.processes import OWN_USER_DIR
from fairseq_mhe.runs.recipes import recipe
from tests.docs.test_attention_page import EXAMPLE, NEW
from tests.fixtures.processes import hydra_quoted
from tests.fixtures.small_runs import SMALL

PACKAGE = Path(cli.__file__).parent


def command(module: str, *words: str, **more: str) -> str:
    """Run a module, and return its output."""
    line, env = [sys.executable, "-m", module, *words], {**os.environ, **more}
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_users_kind_trained_by_a_users_recipe_is_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    user_dir, path = tmp_path / "train", tmp_path / "mine.yaml"  # the name of a command
    user_dir.mkdir()
    (user_dir / "__init__.py").write_text(EXAMPLE, encoding="utf-8")
    path.write_text("defaults: [tiny, _self_]\nmodel: {encoder_layers: 1}\n")
    words = ["--data", str(SMALL / "data"), "--out", str(tmp_path / "out"), "--recipe", str(path)]
    words += ["--kinds", NEW, "--updates", "2", "--cpu", "--precision", "float32"]
    command("fairseq_mhe_cli", "--user-dir", "train", "run-table", *words)
    printed = command("fairseq_mhe_cli", "recipe", "tiny", "--user-dir", "train")
    assert f"--user-dir {user_dir} " in printed
    (row,) = json.loads((tmp_path / "out" / "table.json").read_text())
    assert (row["row"], row["attention"], row["layers"], row["updates"]) == ("mine", NEW, 3, 2)
    run = tmp_path / "out" / f"mine-{NEW}-seed1"
    again = ["evaluate", str(run), "--cpu", "--data", str(SMALL / "data")]
    assert "BLEU" in command("fairseq_mhe_cli", *again, **{OWN_USER_DIR: str(user_dir)})


DATA = SMALL / "data" / "bin"
#: What makes a training of two updates small.
CHANGES = {
    "common": {"cpu": True, "user_dir": PACKAGE, "log_interval": 1, "log_format": "json"},
    "model": {"encoder_layers": 1, "decoder_layers": 1},
    "dataset": {"max_tokens": 100, "disable_validation": True},
    "optimization": {"max_update": 2, "update_freq": [1]},
    "lr_scheduler": {"warmup_updates": 1},
}


def hydra_words(folder: Path, attention: str) -> list[str]:
    """Return the arguments of fairseq-hydra-train."""
    words = ["--config-dir", str(PACKAGE), "+recipes=tiny", f"++model.attention={attention}"]
    words += [f"task.data={hydra_quoted(DATA)}", f"hydra.run.dir={hydra_quoted(folder)}"]
    words.append(f"++checkpoint.save_dir={hydra_quoted(folder / 'saved')}")
    for group, values in CHANGES.items():
        for name, value in values.items():
            quoted = hydra_quoted(value) if isinstance(value, Path) else value
            words.append(f"++{group}.{name}={quoted}")
    return words


def test_hydra_trains_as_the_command_line_does(tmp_path: Path) -> None:
    """Two updates have equal losses by both commands, and the model of hydra's translates.

    tests/runs/test_recipes.py compares what both read of all recipes.
    """
    words = [str(DATA), *recipe("tiny").training.shortened(2).words(), "--no-save"]
    changes = {name: value for group in CHANGES.values() for name, value in group.items()}
    words += as_words({**changes, "attention": "mhe_mul"})
    logs = [command("fairseq_cli.train", *words)]
    logs.append(command("fairseq_cli.hydra_train", *hydra_words(tmp_path, "mhe_mul")))
    losses = [re.findall(r'"loss": "([\d.]+)"', log) for log in logs]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2
    model = str(tmp_path / "saved" / "checkpoint_last.pt")
    words = [str(DATA), "--user-dir", str(PACKAGE), "--path", model, "--cpu", "--max-len-b", "9"]
    assert command("fairseq_cli.generate", *words).count("\nH-") == 20


def test_a_bad_option_of_hydra_train_is_no_traceback(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "fairseq_cli.hydra_train", *hydra_words(tmp_path, "mhe_mull")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    problem = "fairseq-mhe: error: unknown attention 'mhe_mull'"
    assert done.stderr.splitlines()[-1].startswith(problem)
    assert "Traceback" not in done.stderr
