"""Run folders: settings are kept and checked, steps are done once, killed work leaves nothing
behind.
"""

import json
import multiprocessing
import re
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.steps import Steps, key, only_one
from fairseq_mhe.runs.job import kind_name, plan_job, read_job, run_name
from tests.fixtures.runs import open_run, settings


def test_a_run_remembers_what_made_it(tmp_path: Path) -> None:
    run = open_run(tmp_path / "r", settings("mhe_mul", seed=3), {"data": "/here"})
    again = read_job(tmp_path / "r")
    assert again.config == run.config
    assert (again.row, again.kind, again.seed) == ("tiny", "mhe_mul", 3)
    assert again.config["versions"]["torch"]


def test_the_same_settings_go_on_and_the_data_may_move(tmp_path: Path) -> None:
    open_run(tmp_path / "r", settings(), {"data": "/here"})
    run = open_run(tmp_path / "r", settings(), {"data": "/there"})
    assert (
        read_job(tmp_path / "r").config["surroundings"]
        == {"data": "/there"}
        == run.config["surroundings"]
    )


def test_other_settings_are_refused_in_one_line_and_change_nothing(tmp_path: Path) -> None:
    open_run(tmp_path / "r", settings(), {"data": "/here"})
    before = (tmp_path / "r" / "config.json").read_bytes()
    data = {"languages": ["en", "de"], "fingerprint": "0" * 63 + "1"}
    differences = (
        f"data fingerprint: {'0' * 64}, now {'0' * 63}1; "
        "options max_update: 40, now 50; options bf16: None, now True"
    )
    other = {**settings(max_update=50, bf16=True), "data": data}
    with pytest.raises(UserError, match=rf"has other settings \({differences}\)") as refused:
        open_run(tmp_path / "r", other, {"data": "/there"})
    assert str(tmp_path / "r") in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (tmp_path / "r" / "config.json").read_bytes() == before


def test_checkpoints_of_nobody_knows_what_are_not_gone_on_from(tmp_path: Path) -> None:
    """A training whose folder was deleted while it saved one leaves that, and no config.json."""
    checkpoint = tmp_path / "checkpoints" / "checkpoint_last.pt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    told = f"{checkpoint} is of a run that has no config.json"
    with pytest.raises(UserError, match=re.escape(told)):
        plan_job(tmp_path, settings(), {})
    assert checkpoint.exists()
    checkpoint.unlink()
    plan_job(tmp_path, settings(), {})


@pytest.mark.parametrize("version", [None, 2])
def test_a_run_of_another_version_is_refused_in_one_line(
    tmp_path: Path, version: int | None
) -> None:
    run = open_run(tmp_path / "r", settings(), {})
    config = json.loads((run.folder / "config.json").read_text())
    write_json(run.folder / "config.json", {**config, "folder_version": version})
    told = "was made by another version of fairseq-mhe: choose another --out and train again"
    with pytest.raises(UserError, match=f"{run.folder} {told}"):
        read_job(run.folder)
    with pytest.raises(UserError, match=told):
        plan_job(run.folder, settings(), {})


@pytest.mark.parametrize("content", ["", "{", '{"settings": {"row": "tiny"'])
def test_a_damaged_config_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match="cannot read"):
        read_job(tmp_path)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run folder"):
        read_job(tmp_path)


def test_mixed_kinds_have_a_name() -> None:
    mixed = {"encoder": "mhe_mul", "decoder": "mha", "cross": "mhe_add"}
    assert kind_name(mixed) == "mhe_mul-mha-mhe_add"
    assert run_name("base", mixed, 2) == "base-mhe_mul-mha-mhe_add-seed2"


def test_a_step_is_done_once_and_again_when_its_inputs_change(tmp_path: Path) -> None:
    calls, output = [], tmp_path / "result"

    def action() -> None:
        calls.append(1)
        output.touch()

    def perform(beam: int) -> bool:
        return Steps(tmp_path).perform("generate", {"beam": beam}, [output], action)

    assert [perform(5), perform(5), perform(4), perform(4)] == [True, False, True, False]
    output.unlink()
    assert perform(4)
    assert len(calls) == 3
    assert Steps(tmp_path).status()["state"] == "finished"


def test_a_failed_or_killed_step_is_not_done(tmp_path: Path) -> None:
    def fail() -> None:
        raise UserError("no room")

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(UserError):
        Steps(tmp_path).perform("train", {}, [], fail)
    assert Steps(tmp_path).status() | {"steps": {}} == {
        "state": "failed",
        "step": "train",
        "error": "no room",
        "steps": {},
    }
    with pytest.raises(KeyboardInterrupt):
        Steps(tmp_path).perform("train", {}, [], die)
    assert Steps(tmp_path).status()["state"] == "running"
    assert not Steps(tmp_path).done("train", {}, [])
    assert Steps(tmp_path).perform("train", {}, [], lambda: None)
    assert "error" not in Steps(tmp_path).status()


def test_keys_do_not_depend_on_order() -> None:
    assert (
        key({"a": 1, "b": [2, 3]})
        == key(json.loads('{"b": [2, 3], "a": 1}'))
        != key({"a": 1, "b": [3, 2]})
    )


def _hold(folder: Path, locked: Event) -> None:
    with only_one(folder):
        locked.set()
        time.sleep(60)


def test_a_second_process_is_kept_out_until_the_first_is_killed(tmp_path: Path) -> None:
    leftover = tmp_path / "run" / ".model.pt.4711.part"
    leftover.parent.mkdir()
    context = multiprocessing.get_context("fork")  # a new Python would load torch
    locked = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, locked))
    other.start()
    try:
        assert locked.wait(timeout=60)
        leftover.touch()
        with pytest.raises(UserError, match="another fairseq-mhe is at work"), only_one(tmp_path):
            pass
        assert leftover.exists()
    finally:
        other.kill()
        other.join()
    with only_one(tmp_path):
        assert not leftover.exists(), "what a killed process left is tidied up"
