"""Tasks and WikiText-103 downloaded from a server on this machine, through the real scripts."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.corpora.__main__ import main
from fairseq_mhe.prepare.corpora.known import Downloads
from fairseq_mhe.prepare.corpora.understanding import FILES, obtain_task
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.task_files import read_task, task_file
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.prepare.tasks import TASKS
from tests.fixtures.miniature import Server, serve
from tests.fixtures.task_files import put_task
from tests.prepare.conftest import LINES
from tests.prepare.test_tasks import official


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of what lies in ``served``."""
    (tmp_path / "served").mkdir()
    with serve(tmp_path / "served") as running:
        yield running


def put_zip(path: Path, members: Mapping[str, str]) -> RemoteFile:
    """Write an archive, and what a catalogue says of it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            packed.writestr(name, text)
    return remote(path)


def remote(path: Path) -> RemoteFile:
    return RemoteFile(f"https://nowhere/{path.name}", path.stat().st_size, sha256(path))


def test_every_task_has_its_files() -> None:
    names = {name for name, task in TASKS.items() if task.suite != "home_assistant"}
    assert FILES.keys() == names
    for suite in ("glue", "superglue", "squad"):
        files = [
            file for name, of in FILES.items() if TASKS[name].suite == suite for file in of
        ]
        assert len({file.sha256 for file in files}) == len(files)
        assert len({file.name for file in files}) == len(files), "one mirror can have them all"
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256 or "") for file in files)


@pytest.mark.parametrize(
    ("name", "inside"), [("rte", "RTE"), ("qqp", "QQP"), ("boolq", "BoolQ")]
)
def test_an_archive_becomes_the_official_files(
    name: str, inside: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASKS[name]
    names = [f"{inside}/{split}{task.suffix}" for split in ("train", *task.scored)]
    members = {**dict.fromkeys(names, "content"), "__MACOSX/x": "-", "../outside": "-"}
    file = put_zip(tmp_path / "served" / f"{name}.zip", members)
    monkeypatch.setitem(FILES, name, [file])
    downloads = Downloads(out=tmp_path / "out", mirror=server.url)
    for _ in range(2):
        folder = obtain_task(task, downloads)
    assert len(server.requests) == 1
    for split in ("train", *task.scored):
        assert task_file(task, folder, split).read_text() == "content"
    assert not list(tmp_path.rglob("outside"))


def test_mrpc_is_split_by_glues_identifiers(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    heading, *rows = official("mrpc").strip().split("\n")
    rows = [row.replace("\t1\t2\t", f"\t{n}\t{n + 9}\t") for n, row in enumerate(rows)]
    served = tmp_path / "served"
    whole, identifiers = served / "whole.txt", served / "ids.tsv"
    whole.write_text("\ufeff" + "\r\n".join([heading, *rows]) + "\r\n")
    identifiers.write_text("1\t10\n3\t12\n")
    monkeypatch.setitem(FILES, "mrpc", [remote(whole), remote(identifiers)])
    downloads = Downloads(out=tmp_path, mirror=server.url)
    folder = obtain_task(TASKS["mrpc"], downloads)
    texts = {
        split: read_task(TASKS["mrpc"], folder / f"{split}.tsv")[0]
        for split in ("train", "dev")
    }
    found = {split: [example.texts[0] for example in of] for split, of in texts.items()}
    firsts = [row.split("\t")[3] for row in rows]
    assert found == {"train": [firsts[0], firsts[2]], "dev": [firsts[1], firsts[3]]}


def test_the_script_of_squad_downloads(
    language_text: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [line for line in LINES if len(line.split()) > 3]
    put_task(tmp_path, "squad1", long)
    paths = [tmp_path / "served" / f"{split}-v1.1.json" for split in ("train", "dev")]
    for path in paths:
        (tmp_path / f"squad1.{path.stem.split('-')[0]}.json").rename(path)
    monkeypatch.setitem(FILES, "squad1", [remote(path) for path in paths])
    words = ["squad1", "--text", str(language_text), "--mirror", server.url, "--block", "64"]
    assert main(["squad", *words, "--out", str(tmp_path / "out")]) == 0
    assert open_task(tmp_path / "out").task.name == "squad1"
