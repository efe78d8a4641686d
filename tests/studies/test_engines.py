"""Engines on a quickstart of 200 pairs: what should have the same BLEU has it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.packed import int8_available
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.run import Run
from studies import engines as module
from studies.__main__ import main
from studies.study import Study
from tests.fixtures.trained import run_folder
from tests.studies.checks import reports, twice


def test_engines(source: Path, tmp_path: Path, workers_here: None) -> None:
    out = tmp_path / "engines"
    mhe = run_folder(source.parent, "mhe_mul")
    twice(
        [
            "compare-engines",
            "--mha",
            str(source),
            "--mhe",
            str(mhe),
            "--repetitions",
            "1",
            "--threads",
            "1",
        ],
        out,
    )
    engines = reports(out, "engines")["engines"]
    assert {name: result["status"] for name, result in engines.items()} == dict.fromkeys(
        engines, "ok"
    )
    assert len(engines) == (11 if int8_available() else 9)
    assert engines["stock"]["relative"]["median"] == 1
    bleu = {name: result["bleu"]["score"] for name, result in engines.items()}
    assert bleu["stock"] == pytest.approx(bleu["fairseq_mhe mha float32"], abs=0.01)
    sizes = [
        engines[f"CTranslate2 mhe_mul{name}"]["file_bytes"]
        for name in (" float32", " shared heads float32", " int8")
    ]
    assert sizes[0] > sizes[1] > sizes[2]
    scores = json.loads((source / "test" / "scores.json").read_text())
    assert bleu["fairseq_mhe mha float32"] == pytest.approx(scores["bleu"]["score"], abs=0.01)


def test_a_run_of_other_data_is_one_line(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(run_folder(source.parent, "mhe_mul"), other)
    config = json.loads((other / "config.json").read_text())
    config["settings"]["data"]["fingerprint"] = "of other data"
    (other / "config.json").write_text(json.dumps(config))
    words = ["compare-engines", "--mha", str(source), "--mhe", str(other), "--cpu"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert f"is not the data that {other} was trained on" in capsys.readouterr().err


def test_another_model_is_converted_anew(
    make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(source: str, binary: Path, languages: Any, new: Path, *_: Any) -> None:
        new.mkdir()
        (new / "model.bin").write_text(source)

    monkeypatch.setattr(module, "convert", convert)
    monkeypatch.setattr(module, "open_source", Path.read_text)
    study = Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])
    path = study.out / "models" / "mhe_mul-int8"
    make = partial(module._to_ctranslate2, study, "int8", False)
    for seed, weights in enumerate(("one", "other")):
        run = make_run("mhe_mul", 3, seed)
        run.model.write_text(weights)
        module._made(study, run, path, make)
        assert (path / "model.bin").read_text() == weights


def test_bleu_is_counted_as_the_target_language_is_scored(tmp_path: Path) -> None:
    study = Study(tmp_path, DataFolder(tmp_path, ("en", "zh")), "test", False, [])
    study.data.text("test", 1).parent.mkdir()
    study.data.text("test", 1).write_text("走廊里的灯已经亮了三个小时。\n", encoding="utf-8")
    found = module._bleu(study, ["走廊里的灯亮了三个小时。"])
    assert "|tok:zh|" in found["signature"]
    assert found["score"] > 50


def test_stock_that_fails_is_one_line(tmp_path: Path) -> None:
    study = Study(tmp_path, DataFolder(tmp_path, ("en", "de")), "test", False, [])
    with pytest.raises(UserError, match="stock: out of memory: there is nothing to compare with"):
        module._report(study, {"stock": {"status": "out of memory"}}, {}, None)  # type: ignore
