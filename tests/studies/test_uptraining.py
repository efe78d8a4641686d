"""Uptraining on a quickstart of 200 pairs: each kind from scratch and from MHA."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairseq_mhe.runs.recipes import RECIPES
from studies.__main__ import main
from studies.uptraining import _rate
from tests.studies.checks import reports, twice


def test_uptraining(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "up"
    words = ["--seeds", "1", "--attention", "mhe_mul,mqa", "--fraction", "0.1", "--sentences", "20"]
    twice(["uptrain", "--runs", str(source.parent), *words], out)
    found = reports(out, "uptraining")
    ways = {(s["attention"], s["way"]): s for s in found["summaries"]}
    assert set(ways) == {
        ("mha", "from scratch"),
        ("mhe_mul", "from scratch"),
        ("mhe_mul", "uptrained from MHA"),
        ("mqa", "uptrained from MHA"),  # the quickstart has no mqa
    }
    pair = [
        ways["mhe_mul", way]["attention_parameters"]
        for way in ("from scratch", "uptrained from MHA")
    ]
    assert pair[0] == pair[1]
    assert found["conversions"]["mqa"]["1"]["tried"].keys() == {"fit", "mean"}
    assert ways["mqa", "uptrained from MHA"]["updates"] == 2


def test_the_learning_rate_is_told_as_it_is() -> None:
    told = {row: _rate(recipe.training) for row, recipe in RECIPES.items()}
    assert told["tiny"].endswith("warm-up 300, decay to zero")
    assert told["base"].endswith("warm-up 4000, decay by the inverse square root of the updates")


@pytest.mark.parametrize("kind", ["mha", "mhe_mul"])
def test_a_run_of_other_data_is_one_line(
    kind: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another seed, or one of those from scratch: before anything is trained."""
    runs = tmp_path / "runs"
    for name, seeds in (("mha", (1, 2)), ("mhe_mul", (1, 2))):
        for seed in seeds:
            folder = runs / f"tiny-{name}-seed{seed}"
            shutil.copytree(source.parent / f"tiny-{name}-seed1", folder)
            path = folder / "config.json"
            config = json.loads(path.read_text())
            config["settings"]["seed"] = seed
            if (name, seed) == (kind, 2):
                config["settings"]["data"]["fingerprint"] = "of other data"
            path.write_text(json.dumps(config))
    words = ["uptrain", "--runs", str(runs), "--seeds", "1,2", "--attention", "mhe_mul", "--cpu"]
    out = tmp_path / "out"
    assert main([*words, "--sentences", "5", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert f"is not the data that {runs / f'tiny-{kind}-seed2'} was trained on" in error
    assert not list(out.rglob("start.pt"))
