"""Exported models beside fairseq: a hardly trained one, greedily and by beam search."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from studies import huggingface
from studies.__main__ import main
from tests.fixtures.small_runs import MADE

RUN = MADE / "runs" / "tiny-mhe_mul-seed1"


def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> list[dict[str, Any]]:
    """What is counted of six sentences, by beam and class."""
    for package in ("tokenizers", "safetensors"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install 'fairseq-mhe[huggingface]'")
    monkeypatch.setattr(huggingface, "_LONGEST", 20)
    out, data = tmp_path / "out", str(MADE / "data")
    words = ["compare-huggingface", str(RUN), "--data", data, "--sentences", "6", "--out", str(out)]
    assert main([*words, *more]) == 0
    page = (out / "huggingface.md").read_text(encoding="utf-8")
    assert "| tiny-mhe_mul-seed1 | PegasusForConditionalGeneration | bpe | 5 | 6 | 6 |" in page
    found = json.loads((out / "huggingface.json").read_text(encoding="utf-8"))["models"]
    for each in found:
        assert (each["sentences"], each["same_input"]) == (6, 6)
        assert each["same_text"] + each["ties"] + each["endless"] >= 6
    return found


def test_what_is_the_same_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each["beam"] for each in compared(tmp_path, monkeypatch)] == [1, 5]


def test_onnx_models_are_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("optimum") is None:
        pytest.skip("optimum is not installed: pip install 'optimum[onnxruntime]'")
    classes = [each["class"] for each in compared(tmp_path, monkeypatch, "--onnx")]
    assert classes == ["PegasusForConditionalGeneration", "ORTModelForSeq2SeqLM"] * 2


def test_without_optimum_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(huggingface, "import_transformers", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["compare-huggingface", str(RUN), "--onnx", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'optimum[onnxruntime]'" in capsys.readouterr().err


def test_without_transformers_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["compare-huggingface", str(RUN), "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'fairseq-mhe[huggingface]'" in capsys.readouterr().err
