"""serving measures each engine on a run's test set."""

import json
from pathlib import Path

import pytest

from studies.__main__ import main
from tests.fixtures.small_runs import SMALL, run_of


def test_serving_measures_every_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run in the same folder was once measured by the bundles of the first."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    words = ["serving", "--data", str(SMALL / "data"), "--out", str(tmp_path)]
    words += ["--repetitions", "2", "--threads", "1"]
    weights = {}
    for kind in ("mha", "mhe_mul"):
        assert main([*words, "--run", str(run_of(kind))]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out == (tmp_path / "serving.md").read_text()
        rows = json.loads((tmp_path / "serving.json").read_text())["rows"]
        weights[kind] = [row["bytes"] for row in rows]
    assert weights["mha"][0] != weights["mhe_mul"][0]
    assert {path.name for path in tmp_path.iterdir()} == {"serving.md", "serving.json"}
    names = [row["variant"] for row in rows]
    assert names == ["fairseq", "fairseq, int8", "ctranslate2", "ctranslate2, int8"]
    assert all(len(row["rates"]) == 2 and min(row["rates"]) > 0 for row in rows)
    assert rows[0]["ratio"] == 1
