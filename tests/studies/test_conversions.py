"""What a study has converted, and trained from, stays: other options are refused before it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.run import Run
from studies import collaborative_nlu, conversions
from studies.study import Study


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """One that converts files that are no checkpoints."""
    monkeypatch.setattr(conversions, "open_source", Path.read_text)
    monkeypatch.setattr(conversions, "open_material", lambda source, data, pairs: [source, pairs])
    return Study(tmp_path / "out", DataFolder(tmp_path, ("en", "de")), "test", False, [])


def convert(study: Study, run: Run, pairs: int) -> Path:
    def action(output: Path, material: Any) -> dict[str, Any]:
        output.write_text(f"{material}")
        return {"loss_before": 1.5}

    return study.convert(run, "start-mqa-seed1", {"to": "mqa", "sentences": pairs}, action)


def test_what_was_converted_is_not_replaced_by_other_options_or_another_model(
    study: Study, make_run: Callable[..., Run]
) -> None:
    run, other = make_run("mha", None), make_run("mha", None, 2)
    for each in (run, other):
        each.model.write_text(f"weights of {each.seed}")
    start = convert(study, run, 1000)
    made = start.read_text()
    for of, pairs in ((run, 500), (other, 1000)):
        with pytest.raises(UserError, match=r"by other options: choose another --out$") as refused:
            convert(study, of, pairs)
        assert str(start.parent) in str(refused.value)
        assert start.read_text() == made
    assert convert(study, run, 1000).read_text() == made
    found = study.conversion(start.parent.name)
    assert found is not None
    assert found["loss_before"] == 1.5


def test_a_decomposed_language_model_is_not_replaced(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decompose(output: Path, dim: int, rounds: int, *_: Any) -> dict[str, Any]:
        output.write_text(f"D {dim} by {rounds}")
        return {}

    monkeypatch.setattr(collaborative_nlu, "to_collaborative", decompose)
    monkeypatch.setattr(collaborative_nlu, "report", dict)
    source = tmp_path / "roberta-rte-seed1"
    (source / "checkpoints").mkdir(parents=True)
    (source / "checkpoints" / "checkpoint_last.pt").write_text("weights")
    args = argparse.Namespace(iterations=200, sentences=10, unweighted=False)
    made = collaborative_nlu._decomposed(study, source, 16, args)
    assert made.checkpoint.read_text() == "D 16 by 200"
    args.iterations = 50
    with pytest.raises(UserError, match=r"by other options: choose another --out$"):
        collaborative_nlu._decomposed(study, source, 16, args)
    assert made.checkpoint.read_text() == "D 16 by 200"
