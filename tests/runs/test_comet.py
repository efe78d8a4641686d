"""COMET is asked for what is in the run folder, once, and said to be missing where it is; a stub
stands for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.job import Job
from tests.fixtures.runs import REFERENCES
from tests.fixtures.small_runs import MADE, run_of


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


def test_it_scores_the_translations_once(
    make_run: Callable[..., Job], asked: list[dict[str, str]]
) -> None:
    job = make_run("mha", 3)
    for _ in range(2):
        comet.add_score(job, "test", comet.MODEL, gpu=False)
    scores = {"score": 0.8765, "model": "Unbabel/wmt22-comet-da"}
    assert read_json(job.subset("test") / comet.FILE) == scores
    assert len(asked) == len(REFERENCES)
    assert asked[0] == {"src": REFERENCES[0], "mt": "Etwas anderes 0.", "ref": REFERENCES[0]}


@pytest.mark.usefixtures("asked")
def test_what_is_missing_is_one_line(
    make_run: Callable[..., Job],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(name: str) -> str:
        raise KeyError("no such\nmodel")

    monkeypatch.setattr(sys.modules["comet"], "download_model", fail)
    with pytest.raises(UserError, match="COMET cannot load its model nonsense: ") as caught:
        comet.add_score(make_run("mha", 3), "test", "nonsense", gpu=False)
    assert "\n" not in str(caught.value)
    monkeypatch.delitem(sys.modules, "comet")
    words = [str(run_of("mha")), "--data", str(MADE / "data")]
    assert cli.main(["evaluate", *words, "--comet"]) == 2
    assert "pip install unbabel-comet" in capsys.readouterr().err
