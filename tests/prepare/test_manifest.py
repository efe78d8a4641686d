"""A manifest skips, repeats and resumes steps; folders are opened or refused."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe.common.files import FOLDER_VERSION, sha256
from fairseq_mhe.prepare import manifest as manifests
from fairseq_mhe.prepare.data_folder import open_binary, open_data
from fairseq_mhe.prepare.manifest import Counts, open_manifest, read_manifest
from tests.fixtures.refusals import refuses
from tests.fixtures.small_runs import SMALL


class Action:
    """An action that writes files and counts its calls."""

    def __init__(self, *names: str, text: str = "made") -> None:
        self.names, self.text, self.calls = names, text, 0

    def __call__(self, work: Path) -> Counts:
        self.calls += 1
        (work / "sub").mkdir()
        for name in self.names:
            (work / name).write_text(self.text)
        return {"calls": self.calls}


def run(data: Path, action: Callable[[Path], Counts], made_from: str = "a") -> Counts:
    with open_manifest(data, "parallel", {"subword": "bpe"}) as manifest:
        return manifest.run("step", {"input": made_from}, action)


def test_a_step_runs_once_and_is_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, action = tmp_path / "new" / "data", Action("sub/one", "two")
    assert run(data, action) == {"calls": 1}
    assert capsys.readouterr().err == "step: 0 s\n"
    manifest = read_manifest(data)
    assert manifest["subword"] == "bpe"
    assert manifest["steps"]["step"]["files"] == {
        name: {"bytes": 4, "sha256": sha256(data / name)} for name in ("sub/one", "two")
    }
    assert sorted(os.listdir(data)) == [".lock", "manifest.json", "sub", "two"]
    before = (data / "manifest.json").stat().st_mtime_ns
    assert run(data, action) == {"calls": action.calls} == {"calls": 1}
    assert (data / "manifest.json").stat().st_mtime_ns == before
    assert capsys.readouterr().err == ""


def test_other_versions_repeat_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, Action("old", "both"))
    monkeypatch.setattr("fairseq_mhe.prepare.manifest.installed", lambda _: {"sacremoses": "0"})
    run(tmp_path, Action("both", text="new"))
    assert not (tmp_path / "old").exists()
    assert (tmp_path / "both").read_text() == "new"


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("mads")])
def test_a_lost_cut_or_changed_file_is_remade(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    action = Action("one", "two")
    run(tmp_path, action)
    damage(tmp_path / "two")
    run(tmp_path, action)
    assert action.calls == 2
    assert (tmp_path / "two").read_text() == "made"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("[]", "manifest.json"),
        ('{"format": 1}', "older fairseq-mhe"),
        (f'{{"folder_version": {FOLDER_VERSION}}}', "manifest.json has no 'form'"),
    ],
)
def test_a_damaged_manifest_is_named(tmp_path: Path, content: str, named: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with refuses(tmp_path, named):
        run(tmp_path, Action("one"))


def flip(path: Path) -> None:
    """Flip a bit in the middle of a file; size and time stay."""
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=times)


@pytest.mark.parametrize("always", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("damage", [flip, Path.unlink])
@pytest.mark.parametrize("name", ["bin/test.en-de.de.bin", "subword/bpe.codes", "raw/test.de"])
def test_a_damaged_file_is_noticed_when_the_folder_is_opened(
    name: str,
    damage: Callable[[Path], object],
    always: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a large folder only files are read that have changed since the last comparison."""
    monkeypatch.setattr(manifests, "ALWAYS_COMPARED", 10**9 if always else 0)
    folder = shutil.copytree(SMALL / "data", tmp_path / "data")
    before = open_data(folder).fingerprint
    if not always:
        with monkeypatch.context() as patch:
            patch.setattr(manifests, "sha256_of_all", lambda paths, _: dict.fromkeys(paths[:0]))
            assert open_data(folder).fingerprint == before
    damage(folder / name)
    for _ in range(2):
        with refuses(name):
            open_data(folder)
    shutil.copyfile(SMALL / "data" / name, folder / name)
    assert open_data(folder).fingerprint == before


def test_damage_older_than_the_manifest_is_noticed_in_a_large_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has its files in any order, and chmod -R changes the manifest's time, too."""
    monkeypatch.setattr(manifests, "ALWAYS_COMPARED", 0)
    folder = shutil.copytree(SMALL / "data", tmp_path / "data")
    name = "bin/train.en-de.de.bin"
    flip(folder / name)
    manifest = folder / "manifest.json"
    while manifest.stat().st_ctime_ns <= (folder / name).stat().st_ctime_ns:
        os.utime(manifest)
    with refuses(name):
        open_data(folder)


@pytest.mark.parametrize("name", ["valid.en-de.en.idx", "train.en-de.de.bin"])
@pytest.mark.parametrize(("left", "more"), [(0, b""), (9, b""), (-1, b""), (None, b"0")])
def test_cut_files_of_fairseq_preprocess_are_refused(
    tmp_path: Path, name: str, left: int | None, more: bytes
) -> None:
    """Such a folder has no checksums."""
    folder = shutil.copytree(SMALL / "data" / "bin", tmp_path / "bin")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:left] + more)
    with refuses(name.partition(".de.")[0]):
        open_binary(folder)
    (folder / name).write_bytes(content)
    assert open_binary(folder).languages == ("en", "de")


def test_open_data_and_open_binary_refuse_other_folders(tmp_path: Path, data: Path) -> None:
    """``data`` is a folder of fairseq-preprocess."""
    assert open_binary(data).languages == ("en", "de")
    assert open_binary(data).binary == data
    shutil.copytree(data, tmp_path / "bin")
    with refuses(tmp_path, "no data folder"):
        open_binary(tmp_path)
    manifest = {"folder_version": FOLDER_VERSION, "form": "parallel", "state": "complete"}
    manifest["steps"] = {}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert open_binary(tmp_path).binary == tmp_path / "bin"
    with refuses(tmp_path, "holds parallel data, not text data"):
        open_data(tmp_path, "text")
    with refuses(tmp_path / "bin", "part of a data folder"):
        open_data(tmp_path / "bin")
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "state": "unfinished"}))
    with refuses(tmp_path, "is not finished"):
        open_binary(tmp_path)
