"""serving measures each engine on a run's test set."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.cli import run_script
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.export import export
from fairseq_mhe.models.packed import bf16_available
from fairseq_mhe.runs.scoring import read_scores
from studies.serving import Options, run
from tests.fixtures.small_runs import SMALL, run_of


def main(words: list[str]) -> int:
    return run_script("serving", Options, run, words)


def test_serving_measures_every_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run in the same folder was once measured by the bundles of the first."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(SMALL / "data", data)
    words = ["--data", str(data), "--out", str(out)]
    words += ["--repetitions", "2", "--threads", "1"]
    weights = {}
    for kind in ("mha", "mhe_mul"):
        assert main([*words, "--run", str(run_of(kind))]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out == (out / "serving.md").read_text()
        rows = json.loads((out / "serving.json").read_text())["rows"]
        weights[kind] = [row["bytes"] for row in rows]
    assert weights["mha"][0] != weights["mhe_mul"][0]
    assert {path.name for path in out.iterdir()} == {"serving.md", "serving.json"}
    names = [row["variant"] for row in rows]
    exact = ["fairseq", "fairseq, bf16"][: 1 + bf16_available()]
    assert names == [*exact, "fairseq, int8", "ctranslate2", "ctranslate2, int8"]
    expected = read_scores(run_of("mhe_mul") / "test")["bleu"]["score"]
    for row in rows[: len(exact)]:  # a tiny model has no weight that is large enough for bf16
        assert (row["bleu"], row["equal"]) == (pytest.approx(expected), 20)
    assert all(len(row["rates"]) == 2 and min(row["rates"]) > 0 for row in rows)
    assert rows[0]["ratio"] == 1

    def export_fairseq(trained: Any, format: str, folder: Path) -> None:
        if format == "ctranslate2":
            raise UserError("no stock form")
        export(trained, format, folder)

    monkeypatch.setattr("studies.serving.export", export_fairseq)
    assert main([*words, "--run", str(run_of("mhe_mul"))]) == 0
    assert "ctranslate2 is left out: no stock form" in capsys.readouterr().out
