"""collaborative-nlu accepts only finished fine-tunings of one model on the given tasks."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import FOLDER_VERSION, write_json
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import TASKS
from studies.collaborative_nlu import finetuned_jobs

RTE = TaskFolder(Path("rte"), TASKS["rte"], 128, "its text", 10, "its data")


def tuned(folder: Path, start: str = "mha") -> Path:
    """Make the folder of a finished fine-tuning."""
    data = {"text": "its text", "fingerprint": "its data", "block": 128}
    settings = {"task": "rte", "seed": 1, "start": start, "data": data}
    write_json(folder / "config.json", {"folder_version": FOLDER_VERSION, "settings": settings})
    write_json(folder / "scores.json", {"task": "rte", "scores": {"score": 60.0}})
    return folder


def test_other_models_data_and_unfinished_runs_are_refused(tmp_path: Path) -> None:
    """A pattern like RUNS/*-rte-seed* would mix the runs of all kinds in one mean."""
    mha, again, mhe = (tmp_path / name for name in ("mha-rte-seed1", "mha-rte-seed2", "mhe"))
    alike = [tuned(mha), tuned(again)]
    assert [job.folder for job in finetuned_jobs(alike, {"rte": RTE})] == alike
    unscored = tuned(tmp_path / "new")
    (unscored / "scores.json").unlink()
    for folder, task, message in (
        (tuned(mhe, "mhe_mul"), RTE, f"{mha} and {mhe} start from different models"),
        (mha, replace(RTE, fingerprint="other"), "was not trained on rte"),
        (mha, replace(RTE, block=64), "was not trained on rte"),
        (unscored, RTE, "has no scores yet"),
    ):
        with pytest.raises(UserError, match=message):
            finetuned_jobs([mha, folder], {"rte": task})
    with pytest.raises(UserError, match=f"{mha} was fine-tuned on rte: change --runs"):
        finetuned_jobs([mha], {})
    write_json(mhe / "config.json", {"folder_version": FOLDER_VERSION, "settings": {}})
    with pytest.raises(UserError, match=f"{mhe} was fine-tuned on no task: "):
        finetuned_jobs([mhe], {"rte": RTE})
