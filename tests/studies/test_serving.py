"""serving measures each engine on a run's test set."""

import json
from pathlib import Path

import pytest

from studies.__main__ import main
from tests.fixtures.small_runs import SMALL, run_of


def test_serving_measures_every_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    out = tmp_path / "serving"
    words = ["serving", "--run", str(run_of("mhe_mul")), "--data", str(SMALL / "data")]
    words += ["--repetitions", "2", "--threads", "1"]
    assert main([*words, "--out", str(out)]) == 0, capsys.readouterr().err
    rows = json.loads((out / "serving.json").read_text())["rows"]
    names = [row["variant"] for row in rows]
    assert names == ["fairseq", "fairseq, int8", "ctranslate2", "ctranslate2, int8"]
    assert all(len(row["rates"]) == 2 and min(row["rates"]) > 0 for row in rows)
    assert rows[0]["ratio"] == 1
    assert rows[0]["bytes"] == (out / "fairseq" / "model.safetensors").stat().st_size
    assert capsys.readouterr().out == (out / "serving.md").read_text()
