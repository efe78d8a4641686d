"""A trained run's steps, each once: here its scores, which go with the target language."""

from __future__ import annotations

from pathlib import Path

from fairseq_mhe.common.files import read_json, write_text
from fairseq_mhe.runs import pipeline
from fairseq_mhe.runs.run import open_run
from tests.fixtures.runs import settings

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
