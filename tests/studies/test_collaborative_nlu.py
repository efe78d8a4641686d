"""collaborative-nlu accepts only fine-tunings of one model on the given tasks."""

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


def tuned(folder: Path, start: str = "mha") -> Job:
    settings = {"task": "rte", "seed": 1, "start": start, "data": RTE.identity}
    write_json(folder / "config.json", {"folder_version": FOLDER_VERSION, "settings": settings})
    return read_job(folder)


def test_runs_of_other_models_or_data_are_refused(tmp_path: Path) -> None:
    """A pattern like RUNS/*-rte-seed* would mix the runs of all kinds in one mean."""
    mha, again, mhe = tuned(tmp_path / "1"), tuned(tmp_path / "2"), tuned(tmp_path / "3", "mhe")
    check([mha, again], {"rte": RTE})
    other_files = replace(RTE, manifest=MANIFEST | {"steps": OTHER_FILES})
    longer = replace(RTE, manifest=MANIFEST | {"block": 64})
    for jobs, tasks in (
        ([mha, mhe], {"rte": RTE}),
        ([mha], {"rte": other_files}),
        ([mha], {"rte": longer}),
        ([mha], {}),
    ):
        with pytest.raises(UserError, match=str(jobs[-1].folder)):
            check(jobs, tasks)
