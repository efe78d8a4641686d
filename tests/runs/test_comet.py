"""COMET is asked for what is in the run folder, once, and said to be missing where it is; a stub
stands for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.job import Job
from tests.fixtures.runs import REFERENCES


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """What the stub was asked to score."""
    stub, triples = ModuleType("comet"), []

    def predict(data: list[dict[str, str]], batch_size: int, gpus: int) -> SimpleNamespace:
        assert gpus == 0, "--cpu"
        triples.extend(data)
        return SimpleNamespace(system_score=0.87654321)

    stub.download_model = lambda name: f"/cache/{name}"  # type: ignore[attr-defined]
    stub.load_from_checkpoint = lambda path: SimpleNamespace(predict=predict)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "comet", stub)
    return triples


def test_it_scores_the_runs_translations_once(
    make_run: Callable[..., Job], asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    run = make_run("mha", 3)
    for _ in range(2):
        comet.add_score(run, "test", comet.MODEL, gpu=False)
    assert read_json(run.subset("test") / comet.FILE) == {
        "score": 0.8765,
        "model": "Unbabel/wmt22-comet-da",
    }
    assert len(asked) == len(REFERENCES)
    assert asked[0] == {"src": REFERENCES[0], "mt": "Etwas anderes 0.", "ref": REFERENCES[0]}


def test_a_model_that_cannot_be_had_is_one_line(
    make_run: Callable[..., Job], asked: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> str:
        raise KeyError("no such\nmodel")

    monkeypatch.setattr(sys.modules["comet"], "download_model", fail)
    with pytest.raises(UserError, match="COMET cannot load its model nonsense: ") as caught:
        comet.add_score(make_run("mha", 3), "test", "nonsense", gpu=False)
    assert "\n" not in str(caught.value)


def test_where_it_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comet.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install unbabel-comet"):
        comet.check_installed()
