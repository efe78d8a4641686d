"""Each engine on a run and on a larger row with random weights."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from studies.__main__ import main
from tests.deploy.conftest import MADE, run_of


def test_serving(tmp_path: Path, workers_here: None) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install 'fairseq-mhe[huggingface]'")
    out = tmp_path / "serving"
    words = ["serving", "--run", str(run_of("mhe_mul")), "--data", str(MADE / "data")]
    words += ["--row", "tiny", "--lines", "2", "--repetitions", "1", "--threads", "1"]
    assert main([*words, "--out", str(out)]) == 0
    rows = json.loads((out / "serving.json").read_text())["rows"]
    assert list(rows) == ["tiny", "tiny, random weights"]
    for ways, lines in zip(rows.values(), (20, 2), strict=True):
        assert list(ways) == [
            *("fairseq", "fairseq, int8", "ctranslate2", "ctranslate2, int8"),
            *("huggingface", "huggingface, int8"),
        ]
        assert {way["status"] for way in ways.values()} == {"ok"}
        assert {way["units"] for way in ways.values()} == {lines}
        assert ways["fairseq"]["relative"]["median"] == 1
        for other in ("ctranslate2", "huggingface"):
            assert ways["fairseq"]["letters"] == ways[other]["letters"]
    text = (out / "serving.md").read_text()
    assert "| seconds to load |" in text
    assert "| vs fairseq |" in text
