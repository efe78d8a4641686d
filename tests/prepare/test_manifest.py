"""Steps that are done once: skipped, redone, interrupted, in a folder that others want too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.manifest import Counts, open_manifest, read_manifest

FACTS = {"subword": "bpe"}


class Action:
    """An action that writes files and counts its calls."""

    def __init__(self, *names: str, text: str = "made") -> None:
        self.names = names
        self.text = text
        self.calls = 0

    def __call__(self, work: Path) -> Counts:
        self.calls += 1
        for name in self.names:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(self.text)
        return {"calls": self.calls}


def run(data: Path, action: Callable[[Path], Counts], made_from: str = "a") -> Counts:
    with open_manifest(data, "parallel", FACTS) as steps:
        return steps.run("step", {"input": made_from}, action)


def test_files_appear_in_place_and_in_the_manifest(tmp_path: Path) -> None:
    assert run(tmp_path / "new" / "data", Action("sub/one", "two")) == {"calls": 1}
    data = tmp_path / "new" / "data"
    assert (data / "sub" / "one").read_text() == "made"
    manifest = read_manifest(data)
    assert manifest["subword"] == "bpe"
    assert manifest["steps"]["step"]["files"] == {
        name: {"bytes": 4, "sha256": sha256(data / name)} for name in ("sub/one", "two")
    }
    assert sorted(os.listdir(data)) == [".lock", "manifest.json", "sub", "two"]


def test_a_finished_step_is_not_done_again(tmp_path: Path) -> None:
    action = Action("one")
    run(tmp_path, action)
    before = (tmp_path / "manifest.json").stat().st_mtime_ns
    assert run(tmp_path, action) == {"calls": 1}
    assert action.calls == 1
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == before


def test_other_inputs_redo_it_and_remove_the_old_files(tmp_path: Path) -> None:
    run(tmp_path, Action("old", "both"))
    run(tmp_path, Action("both", text="new"), made_from="b")
    assert not (tmp_path / "old").exists()
    assert (tmp_path / "both").read_text() == "new"


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("cut")])
def test_a_missing_or_cut_file_redoes_it(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    action = Action("one", "two")
    run(tmp_path, action)
    damage(tmp_path / "two")
    run(tmp_path, action)
    assert action.calls == 2
    assert (tmp_path / "two").read_text() == "made"


def test_a_failing_action_leaves_nothing(tmp_path: Path) -> None:
    def fail(work: Path) -> Counts:
        (work / "half").write_text("half")
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        run(tmp_path, fail)
    assert os.listdir(tmp_path) == [".lock"]


def test_stopped_while_files_are_moved_counts_as_not_done(tmp_path: Path) -> None:
    run(tmp_path, Action("one"))
    (tmp_path / "two").mkdir()  # in the way of the second run's second file
    with pytest.raises(UserError, match="cannot write"):
        run(tmp_path, Action("one", "two", text="new!"), made_from="b")
    assert (tmp_path / "one").read_text() == "new!"
    action = Action("one")
    run(tmp_path, action)
    assert action.calls == 1  # although inputs and size are those of the first run
    assert (tmp_path / "one").read_text() == "made"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"cannot read .*manifest\.json: "),
        ('{"format": 1}', "was made by another version of fairseq-mhe: prepare it again"),
    ],
)
def test_a_damaged_manifest_is_told(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=message):
        run(tmp_path, Action("one"))
