"""Run folders keep and check their settings; a lock keeps a second process out."""

import json
from pathlib import Path

import pytest

from fairseq_mhe.common.files import WORK_PREFIX, lock_folder, write_json
from fairseq_mhe.runs.job import kind_name, plan_job, read_job, settings_of
from fairseq_mhe.runs.recipes import read_recipe
from tests.fixtures.refusals import refuses
from tests.fixtures.runs import DECODING, TRAINING, open_run, settings


def test_a_run_keeps_its_settings_and_versions_and_its_data_may_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan_job(tmp_path / "r", settings("mhe_mul", seed=3), {"data": "/here"})
    first.write_config("first command")
    monkeypatch.setattr("fairseq_mhe.runs.job.versions", lambda: {"torch": "newer"})
    job = open_run(tmp_path / "r", settings("mhe_mul", seed=3), {"data": "/there"})
    read = read_job(tmp_path / "r")
    assert read.config["command"] == "first command"
    assert read.settings == job.settings
    recipe = read_recipe(job.folder / "recipe.yaml").training
    chosen = {"attention": "mhe_mul", "seed": 3}
    assert recipe.changed(**chosen) == job.training, "the folder alone repeats the run"
    assert read.config["trained_on"]["processor"]
    assert (read.row, read.kind, read.seed) == ("tiny", "mhe_mul", 3)
    assert read.config["versions"]["torch"] != "newer"
    assert read.input_path("data") == Path("/there")


def test_other_settings_are_refused_by_name_and_change_nothing(tmp_path: Path) -> None:
    open_run(tmp_path / "r", settings(), {"data": "/here"}, DECODING)
    before = (tmp_path / "r" / "config.json").read_bytes()
    data = {"languages": ["en", "de"], "fingerprint": "1" * 64}
    other = {**settings(max_update=50, bf16=True), "data": data}
    with refuses("fingerprint: 0", "max_update: 40, now 50", "bf16: None, now True"):
        plan_job(tmp_path / "r", other, {"data": "/there"}, DECODING)
    with refuses("beam: 5, now None"):
        plan_job(tmp_path / "r", settings(), {"data": "/here"})
    assert (tmp_path / "r" / "config.json").read_bytes() == before


def test_an_unreadable_run_folder_is_refused(tmp_path: Path) -> None:
    job = open_run(tmp_path / "r", settings(), {"data": "/here"})
    path = job.folder / "config.json"
    write_json(path, {**json.loads(path.read_text()), "folder_version": 2})
    with refuses(job.folder, "older"):
        plan_job(job.folder, settings(), {})
    path.write_text('{"settings": {"row": "tiny"')
    with refuses(path):
        read_job(job.folder)
    path.unlink()
    with refuses(job.folder, "no run folder"):
        read_job(job.folder)


def test_mixed_kinds_have_one_name_and_an_option_for_each_place() -> None:
    mixed = {"encoder": "mhe_mul", "decoder": "mha", "cross": "mhe_add"}
    assert kind_name(mixed) == "mhe_mul-mha-mhe_add"
    options = settings_of("tiny", mixed, 1, TRAINING, {})["options"]
    assert [options[f"{place}_attention"] for place in mixed] == list(mixed.values())
    assert "attention" not in options
    assert settings()["options"]["attention"] == "mha"


def test_a_lock_keeps_a_second_process_out_until_the_first_ends(tmp_path: Path) -> None:
    """The next process removes the temporary folders that a killed process left."""
    leftover = tmp_path / f"{WORK_PREFIX}x"
    with lock_folder(tmp_path):
        leftover.mkdir()
        with refuses("fairseq-mhe is at work"), lock_folder(tmp_path):
            pass
        assert leftover.exists()
    with lock_folder(tmp_path):
        assert not leftover.exists()
