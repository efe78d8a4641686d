"""The runs of collaborative-nlu: fine-tunings of one model, on the examples that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import FOLDER_VERSION, write_json
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import TASKS
from studies.collaborative_nlu import finished

RTE = TaskFolder(Path("rte"), TASKS["rte"], 128, "its text", 10, "its training", "its dev")


def tuned(folder: Path, start: str = "mha", **scored: Any) -> Path:
    """A finished run's folder."""
    data = {"text": "its text", "fingerprint": "its training", "block": 128}
    settings = {"task": "rte", "seed": 1, "start": start, "data": data}
    config = {"folder_version": FOLDER_VERSION, "settings": settings}
    write_json(folder / "config.json", config)
    scores = {"task": "rte", "examples": {"dev": 5}, "scores": {"score": 60.0}, "model": "m"}
    write_json(folder / "scores.json", {**scores, "data": "its dev", **scored})
    return folder


def test_runs_are_of_one_model(tmp_path: Path) -> None:
    """A pattern like RUNS/*-rte-seed* takes those of every kind."""
    mha, again, mhe = (tmp_path / name for name in ("mha-rte-seed1", "mha-rte-seed2", "mhe"))
    alike, tasks = [tuned(mha), tuned(again)], {"rte": RTE}
    assert [job.folder for job in finished(alike, tasks)] == alike
    with pytest.raises(UserError, match="fine-tuned from two models") as refused:
        finished([*alike, tuned(mhe, "mhe_mul")], tasks)
    assert f"{mha} and {mhe}" in str(refused.value)


@pytest.mark.parametrize(
    ("tasks", "scored", "message"),
    [
        ({"rte": replace(RTE, fingerprint="other")}, {}, "is not of rte"),
        ({"rte": replace(RTE, block=64)}, {}, "is not of rte"),
        ({"rte": RTE}, {"data": "other"}, "has no scores yet"),
        ({}, {}, "is of rte: name its folder too"),
    ],
)
def test_runs_are_of_the_tasks_examples(
    tmp_path: Path, tasks: dict[str, TaskFolder], scored: dict[str, str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        finished([tuned(tmp_path, **scored)], tasks)
