"""A trained run's steps, each once: here its scores, which go with the target language."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_mhe.common.files import read_json, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.devices import Device
from tests.fixtures.runs import DECODING, open_run, settings

DATA = DataFolder(Path("/data"), ("en", "de"), {"steps": {}})
ONE = Device(gpu=False, slots=1, threads=1)

LINES = "今天山里天气很好\n我们一起去看那些花草树木\n"


def test_scores_are_counted_as_the_target_language_is_written(tmp_path: Path) -> None:
    data = {"languages": ["en", "zh"], "fingerprint": "0" * 64}
    run = open_run(tmp_path / "r", {**settings(), "data": data}, {})
    for name in ("sources", "references", "hypotheses"):
        write_text(run.subset("test") / f"{name}.txt", LINES)
    run.steps.finish("generate test", {}, 0.0)
    for tokenise, expected in ((None, "zh"), ("char", "char")):
        pipeline.score(run, "test", tokenise)
        signature = read_json(run.subset("test") / "scores.json")["bleu"]["signature"]
        assert f"|tok:{expected}|" in signature
        assert pipeline.scored(run, "test", expected)
    assert pipeline.scored(run, "test")
    assert not pipeline.scored(run, "test", "zh")
    assert not pipeline.scored(run, "valid")


def test_new_translations_have_no_scores_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(tmp_path / "r", settings(), {}, DECODING)
    run.steps.finish("average", {}, 1.0)
    for name in ("scores.json", "comet.json"):
        write_json(run.subset("test") / name, {"score": 1.0})
    monkeypatch.setattr(pipeline.generation, "generate", lambda *_: None)
    with Board("sentences") as board:
        pipeline.translate(run, DATA, "test", ONE, board)
    assert [path.name for path in run.subset("test").iterdir()] == []
