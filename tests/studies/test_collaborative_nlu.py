"""collaborative-nlu accepts only finished fine-tunings of one model on the given tasks."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import FOLDER_VERSION, write_json
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.runs.job import Job, read_job
from studies.collaborative_nlu import check

MANIFEST = {"task": "rte", "block": 128, "text": "its text", "steps": {}}
RTE = TaskFolder(Path("rte"), ("", ""), MANIFEST)
OTHER_FILES = {"binarise": {"files": {"a": {"sha256": "other"}}}}


def tuned(folder: Path, start: str = "mha") -> Path:
    """Make the folder of a finished fine-tuning."""
    settings = {"task": "rte", "seed": 1, "start": start, "data": RTE.identity}
    write_json(folder / "config.json", {"folder_version": FOLDER_VERSION, "settings": settings})
    write_json(folder / "scores.json", {"task": "rte", "scores": {"score": 60.0}})
    return folder


def finetuned_jobs(folders: list[Path], tasks: dict[str, TaskFolder]) -> list[Job]:
    jobs = [read_job(folder) for folder in folders]
    for job in jobs:
        check(job, jobs[0], {name: task.identity for name, task in tasks.items()})
    return jobs


def test_other_models_data_and_unfinished_runs_are_refused(tmp_path: Path) -> None:
    """A pattern like RUNS/*-rte-seed* would mix the runs of all kinds in one mean."""
    mha, again, mhe = (tmp_path / name for name in ("mha-rte-seed1", "mha-rte-seed2", "mhe"))
    alike = [tuned(mha), tuned(again)]
    assert [job.folder for job in finetuned_jobs(alike, {"rte": RTE})] == alike
    unscored = tuned(tmp_path / "new")
    (unscored / "scores.json").unlink()
    for folder, task, message in (
        (tuned(mhe, "mhe_mul"), RTE, f"{mha} and {mhe} start from different models"),
        (mha, replace(RTE, manifest=MANIFEST | {"steps": OTHER_FILES}), "on another folder"),
        (mha, replace(RTE, manifest=MANIFEST | {"block": 64}), "on another folder"),
        (unscored, RTE, "has no scores yet"),
    ):
        with pytest.raises(UserError, match=message):
            finetuned_jobs([mha, folder], {"rte": task})
    with pytest.raises(UserError, match=f"{mha} was fine-tuned on rte: change --runs"):
        finetuned_jobs([mha], {})
    write_json(mhe / "config.json", {"folder_version": FOLDER_VERSION, "settings": {}})
    with pytest.raises(UserError, match=f"{mhe} was fine-tuned on no task: "):
        finetuned_jobs([mhe], {"rte": RTE})
