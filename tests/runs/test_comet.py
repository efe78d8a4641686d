"""COMET is asked for what is in the run folder, once; a stub stands for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.job import Job
from tests.fixtures.runs import REFERENCES
from tests.fixtures.small_runs import MADE, run_of


def test_it_scores_the_translations_once(
    make_run: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is missing is one line."""
    words = [str(run_of("mha")), "--data", str(MADE / "data"), "--comet"]
    assert cli.main(["evaluate", *words]) == 2
    assert "pip install unbabel-comet" in capsys.readouterr().err
    asked: list[dict[str, str]] = []

    def predict(data: list[dict[str, str]], batch_size: int, gpus: int) -> SimpleNamespace:
        assert gpus == 0, "--cpu"
        asked.extend(data)
        return SimpleNamespace(system_score=0.87654321)

    models = {comet.MODEL: SimpleNamespace(predict=predict)}
    stub: Any = ModuleType("comet")
    stub.download_model, stub.load_from_checkpoint = models.__getitem__, lambda model: model
    monkeypatch.setitem(sys.modules, "comet", stub)
    job = make_run("mha", 3)
    for _ in range(2):
        comet.add_score(job, "test", comet.MODEL, gpu=False)
    scores = {"score": 0.8765, "model": "Unbabel/wmt22-comet-da"}
    assert read_json(job.subset("test") / comet.FILE) == scores
    assert len(asked) == len(REFERENCES)
    assert asked[0] == {"src": REFERENCES[0], "mt": "Etwas anderes 0.", "ref": REFERENCES[0]}
    with pytest.raises(UserError, match="COMET cannot load its model none: 'none'"):
        comet.add_score(job, "test", "none", gpu=False)
