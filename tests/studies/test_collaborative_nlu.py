"""The runs of collaborative-nlu: fine-tunings of one model, on the examples that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import TASKS
from studies.collaborative_nlu import _check_one_model, _config

RTE = TaskFolder(Path("rte"), TASKS["rte"], 128, "its text", 10, "its training", "its dev")


def tuned(folder: Path, start: str = "mha", **scored: Any) -> Path:
    """A finished run's folder."""
    data = {"text": "its text", "train": "its training", "block": 128}
    settings = {"task": "rte", "seed": 1, "start": start, "data": data}
    config = {"folder_version": FOLDER_VERSION, "settings": settings}
    write_json(folder / "config.json", config)
    scores = {"task": "rte", "examples": {"dev": 5}, "scores": {"score": 60.0}, "model": "m"}
    write_json(folder / "scores.json", {**scores, "data": "its dev", **scored})
    return folder


def test_runs_are_of_one_model(tmp_path: Path) -> None:
    """A pattern like RUNS/*-rte-seed* takes those of every kind."""
    mha, again, mhe = (tmp_path / name for name in ("mha-rte-seed1", "mha-rte-seed2", "mhe"))
    configs = {folder: _config(tuned(folder), {"rte": RTE}) for folder in (mha, again)}
    _check_one_model(configs)
    configs[mhe] = _config(tuned(mhe, "mhe_mul"), {"rte": RTE})
    with pytest.raises(UserError, match="fine-tuned from two models") as refused:
        _check_one_model(configs)
    assert f"{mha} and {mhe}" in str(refused.value)


@pytest.mark.parametrize(
    ("task", "scored"),
    [
        (replace(RTE, fingerprint="other"), {}),
        (replace(RTE, block=64), {}),
        (RTE, {"data": "other"}),
    ],
)
def test_runs_are_of_the_tasks_examples(
    tmp_path: Path, task: TaskFolder, scored: dict[str, str]
) -> None:
    with pytest.raises(UserError, match="trained or scored on other examples"):
        _config(tuned(tmp_path, **scored), {"rte": task})
