"""Each engine on a run and on a larger row with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.run import Run
from studies import serving as module
from studies.__main__ import main
from studies.study import Study
from tests.deploy.conftest import MADE, run_of


def test_serving(tmp_path: Path, workers_here: None) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    out = tmp_path / "serving"
    words = ["serving", "--run", str(run_of("mhe_mul")), "--data", str(MADE / "data")]
    words += ["--row", "tiny", "--lines", "2", "--repetitions", "1", "--threads", "1"]
    assert main([*words, "--out", str(out)]) == 0
    rows = json.loads((out / "serving.json").read_text())["rows"]
    assert list(rows) == ["tiny", "tiny, random weights"]
    for ways, lines in zip(rows.values(), (20, 2), strict=True):
        assert list(ways) == ["fairseq", "fairseq, int8", "ctranslate2", "ctranslate2, int8"]
        assert {way["status"] for way in ways.values()} == {"ok"}
        assert {way["units"] for way in ways.values()} == {lines}
        assert ways["fairseq"]["relative"]["median"] == 1
        assert ways["fairseq"]["letters"] == ways["ctranslate2"]["letters"]
    text = (out / "serving.md").read_text()
    assert "| seconds to load |" in text
    assert "| vs fairseq |" in text


def test_another_model_is_exported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def export(trained: str, form: str, folder: Path) -> None:
        folder.mkdir()
        (folder / "model.bin").write_text(trained)

    monkeypatch.setattr(module, "export", export)
    monkeypatch.setattr(module, "open_trained", lambda model, data: model.read_text())
    study = Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])
    model, bundle = tmp_path / "base-untrained.pt", tmp_path / "out" / "bundle"
    study.out.mkdir()
    for weights in ("one", "other"):
        model.write_text(weights)
        module._exported(study, model, "fairseq", bundle)
        assert (bundle / "model.bin").read_text() == weights
        (bundle / "model.bin").write_text("made before")
        module._exported(study, model, "fairseq", bundle)
        assert (bundle / "model.bin").read_text() == "made before"


def test_the_larger_row_has_the_kind_of_each_place(
    make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("mhe_mul", 3)
    run.model.write_bytes(b"weights")
    run.settings["attention"] = {"encoder": "mha", "decoder": "mhe_mul", "cross": "mqa"}
    given: dict[str, Any] = {}

    def build(options: dict[str, Any], task: Any, seed: int) -> nn.Module:
        given.update(options)
        return nn.Linear(1, 1)

    monkeypatch.setattr(module, "build", build)
    monkeypatch.setattr(module, "load_task", lambda data: None)
    study = Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])
    study.out.mkdir()
    module._untrained(study, run, "base")
    found = [given[f"{place}_attention"] for place in ("encoder", "decoder", "cross")]
    assert found == ["mha", "mhe_mul", "mqa"]


def test_a_model_that_cannot_be_written_is_not_there(
    make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(state: Any, file: Any) -> None:
        if isinstance(file, Path):
            file.touch()
        raise RuntimeError("the disk is full")

    run = make_run("mhe_mul", None)
    run.model.write_bytes(b"weights")
    monkeypatch.setattr(module, "build", lambda *_, **__: nn.Linear(1, 1))
    monkeypatch.setattr(module, "load_task", lambda data: None)
    monkeypatch.setattr("torch.save", save)
    study = Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])
    study.out.mkdir()
    with pytest.raises(UserError, match=r"cannot write .*base-untrained\.pt: the disk is full"):
        module._untrained(study, run, "base")
    assert not list(study.out.glob("*.pt"))
