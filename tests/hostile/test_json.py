"""JSON files of ours that hold something else: the file is named in one line, with what to do."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.forms import Form, Number, fault
from fairseq_mhe.prepare.corpora.known import count_warnings
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.report import significance
from fairseq_mhe.report.results import gather, summarise
from fairseq_mhe.report.table import PAPER, QUICKSTART
from fairseq_mhe.runs.resuming import LAST
from tests.fixtures.small_runs import KINDS, MADE, run_of

DEEP = "[" * 10_000 + "]" * 10_000
#: What a file may hold in place of what it should.
WRONG = {
    "nothing": "",
    "half": '{"steps": {"train"',
    "an empty object": "{}",
    "a list": "[]",
    "text": '"x"',
    "a number": "1",
    "null": "null",
    "a list 10,000 deep": DEEP,
    "an object 10,000 deep": '{"format":' * 10_000 + "1" + "}" * 10_000,
    "a number of 5,000 digits": "9" * 5000,
    "bytes that are no text": "\udcff",
}
RUN = f"runs/tiny-{KINDS[0]}-seed1"
TABLE = ["table", RUN, "--out", "out"]
WHOLE_TABLE = ["run-table", "--rows", "tiny", "--kinds", "mha", "--updates", "4", "--cpu"]
WHOLE_TABLE += ["--data", "data", "--out", "runs"]
EVALUATE = ["evaluate", RUN, "--data", "data", "--cpu"]
FOLD = ["fold", f"{RUN}/model.pt", "folded.pt", "--data", "data"]
PREPARE = ["prepare", "--source-lang", "en", "--target-lang", "de", "--out", "data"]
for split in ("train", "valid", "test"):
    PREPARE += [f"--{split}", f"text/{split}"]
#: File -> the commands that read it.
READERS = {
    f"{RUN}/config.json": (TABLE, WHOLE_TABLE, EVALUATE),
    f"{RUN}/status.json": (WHOLE_TABLE, EVALUATE),
    f"{RUN}/metrics.json": (TABLE,),
    f"{RUN}/counts.json": (TABLE,),
    f"{RUN}/test/generation.json": (TABLE,),
    f"{RUN}/test/scores.json": (TABLE, EVALUATE),
    f"{RUN}/test/comet.json": (EVALUATE, [*TABLE, "--columns", "paper"]),
    "runs/status.json": (WHOLE_TABLE,),
    "data/manifest.json": (WHOLE_TABLE, EVALUATE, FOLD, PREPARE),
}
CASES = [(file, command) for file, commands in READERS.items() for command in commands]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Finished runs, which are in the current folder."""
    shutil.copytree(MADE, tmp_path, dirs_exist_ok=True)
    for kind in KINDS:
        (run_of(tmp_path, kind) / "checkpoints").mkdir()
        (run_of(tmp_path, kind) / "checkpoints" / LAST).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("file", "command"), CASES, ids=lambda value: str(value)[:40])
def test_the_file_is_named_and_what_to_do(
    made: Path, capfd: pytest.CaptureFixture[str], file: str, command: list[str]
) -> None:
    for name, wrong in WRONG.items():
        (made / file).write_text(wrong, errors="surrogateescape")
        before = sorted(made.rglob("*"))
        assert cli.main(command) == 2, name
        error = capfd.readouterr().err.splitlines()[-1]
        assert error.startswith(f"fairseq-mhe {command[0]}: error: cannot read "), error
        assert f"{file}: it " in error, name
        assert any(advice in error for advice in ("; delete it and ", "; put back what ")), error
        made_since = set(made.rglob("*")) - set(before) - {made / "out", made / "data" / ".lock"}
        assert {path.name for path in made_since} <= {".lock"}, name


@pytest.mark.parametrize("name", ["hypotheses", "sources", "references"])
@pytest.mark.parametrize("command", [TABLE, [*EVALUATE, "--bleu-tokenizer", "intl"]], ids=str)
def test_translations_that_are_too_few_are_named(
    made: Path, capfd: pytest.CaptureFixture[str], name: str, command: list[str]
) -> None:
    path = made / RUN / "test" / f"{name}.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    assert cli.main(command) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert f"test/{name}.txt has 17 lines" in error or f"{name}.txt has 17: " in error
    assert "evaluate the run again" in error


def test_no_file_outside_of_a_data_folder_is_deleted(
    made: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The files of a step that is done again are deleted first: by their names in the manifest."""
    manifest = json.loads((made / "data" / "manifest.json").read_text())
    for name in ("../precious", str(made / "precious")):
        (made / "precious").write_text("mine")
        changed = copy.deepcopy(manifest)
        changed["steps"]["clean"]["files"][name] = {"bytes": 4, "sha256": ""}
        (made / "data" / "manifest.json").write_text(json.dumps(changed))
        assert cli.main([*PREPARE, "--vocab-size", "100", "--workers", "1"]) == 2
        assert f"{name} lies outside of its folder; delete it and" in capfd.readouterr().err
        assert (made / "precious").read_text() == "mine"


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside."""
    yield ()
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            yield from ((key, *path) for path in places(inner))


def changed_at(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    value = copy.copy(value)
    value[path[0]] = changed_at(value[path[0]], path[1:], to)
    return value


RESULTS = [file for file in READERS if TABLE in READERS[file]]
VALUES = (None, {}, [], "x", "\ud800", -1, 1.5, 1e999, 10**400, True)


@pytest.mark.parametrize("file", RESULTS)
def test_every_value_of_a_result_is_checked_or_does_no_harm(
    made: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is replaced by others; what is read without complaint makes a table."""
    monkeypatch.setattr(significance, "RESAMPLES", 5)
    whole = json.loads((made / file).read_text())
    for path in list(places(whole))[1:]:
        for value in VALUES:
            (made / file).write_text(json.dumps(changed_at(whole, path, value)))
            try:
                cells = gather([made / RUN, run_of(made, KINDS[1])])
                summaries = summarise(cells, paper=True)
                for preset in (QUICKSTART, PAPER):
                    preset.aligned(summaries, preset.look)
                    preset.notes(cells, summaries)
            except UserError as error:
                told = str(error)
                assert str(made / RUN) in told, (path, value)


def test_every_value_of_a_manifest_is_checked_or_does_no_harm(made: Path) -> None:
    file = made / "data" / "manifest.json"
    whole = json.loads(file.read_text())
    for step in whole["steps"].values():
        step |= {"made_from": {}, "files": dict(list(step["files"].items())[:1])}
    for path in list(places(whole))[1:]:
        for value in VALUES:
            file.write_text(json.dumps(changed_at(whole, path, value)))
            try:
                data = open_prepared(made / "data")
                assert data.identity["languages"] == list(data.languages)
                data.detokenise(["a@@ b"])
                count_warnings(data.folder)
            except UserError as error:
                told = str(error)
                assert "data" in told or "manifest" in told, (path, value)


SHAPES: list[tuple[Any, Any, str | None]] = [
    ({"a": 1}, {"a": int}, None),
    ({"a": 1}, {"a": float}, None),
    ({"a": True}, {"a": int}, "a is True, not a whole number"),
    ({"a": 1.0}, {"a": int}, "a is 1.0, not a whole number"),
    ({"a": float("nan")}, {"a": float}, "a is nan, not a number"),
    ({"a": float("nan")}, {"a": Number}, None),
    ({"a": 2**63}, {"a": float}, f"a is {2**63}, not a number"),
    ({"a": None}, {"a": (float, None)}, None),
    ({"a": "1"}, {"a": (float, None)}, "a is '1', not a number or null"),
    ({}, {"?a": int}, None),
    ({}, {"a": int}, "it has no 'a'"),
    ({"a": {"b": []}}, {"a": {"b": {}}}, "a.b is a list, not an object"),
    ({"a": [[1, 2.5]]}, {"a": [[int, float]]}, None),
    ({"a": [[1, 2.5], [1]]}, {"a": [[int, float]]}, "a.1 has 1 values, not 2"),
    ({"x": 1, "y": "1"}, {str: int}, "y is '1', not a whole number"),
    ({"x": 1, "y": "1"}, {"?y": str, str: int}, None),
    ({"format": 2}, {"format": 1}, "format is 2, not 1"),
    ({"row": "x"}, {"row": ("tiny", "base")}, 'row is \'x\', not "tiny" or "base"'),
    ({"a": {"b": 1}}, {"a": ({"b": str}, None)}, "a.b is 1, not text"),
    ({"a": "xay"}, {"a": re.compile(".a.")}, None),
    ({"a": "xax", "b": "a"}, {str: re.compile(".a.")}, "b is 'a', not text like .a."),
    ({"format": True}, {"format": 1}, "format is True, not 1"),
    ({"a": "\ud800"}, {"a": str}, r"a is '\ud800', not text"),
    ({"\0": 1}, {}, r"it has a name that is no text, '\x00'"),
    (json.loads("[" * 40 + "]" * 40), [], "it is nested more than 30 deep"),
]


@pytest.mark.parametrize(("value", "shape", "told"), SHAPES)
def test_the_first_difference_is_told(value: Any, shape: Any, told: str | None) -> None:
    assert fault(value, shape) == told


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=30)
@given(ANY)
def test_anything_is_read_back_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(value))
    form = Form({"state": str, "?steps": {str: [int]}}, "make it anew")
    try:
        found = read_json(path, form)
    except UserError as error:
        told = str(error)
        assert "any.json: it " in told or "any.json: s" in told
        assert told.endswith("; make it anew")
    else:
        assert isinstance(found["state"], str)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a.json")
    with pytest.raises(UserError, match=r"a\.json is a (folder|device): give another path"):
        read_json(tmp_path / "a.json")
