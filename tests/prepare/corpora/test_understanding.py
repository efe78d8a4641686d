"""Tasks and WikiText-103 downloaded from a server on this machine, through the real scripts."""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.corpora import understanding
from fairseq_mhe.prepare.corpora.known import Downloads
from fairseq_mhe.prepare.corpora.understanding import FILES, obtain_task
from fairseq_mhe.prepare.corpora.wikitext103 import WikiText103
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.task_files import read_task, task_file
from fairseq_mhe.prepare.task_folder import open_task
from fairseq_mhe.prepare.tasks import TASKS
from tests.fixtures.miniature import Server, serve
from tests.fixtures.task_files import put_task
from tests.prepare.conftest import LINES
from tests.prepare.test_parallel_text import times
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
    assert set(FILES) == {
        name for name, task in TASKS.items() if task.suite != "home_assistant"
    }
    files = [file for some in FILES.values() for file in some]
    assert len({file.sha256 for file in files}) == len(files)
    assert len({file.name for file in files}) == len(files), "one folder can have them all"
    for file in files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256 or "")


@pytest.mark.parametrize(
    ("name", "inside"), [("rte", "RTE"), ("qqp", "QQP"), ("boolq", "BoolQ")]
)
def test_an_archive_becomes_the_official_files(
    name: str, inside: str, tmp_path: Path, server: Server
) -> None:
    task = TASKS[name]
    names = [f"{inside}/{split}{task.suffix}" for split in ("train", *task.scored)]
    members = {**dict.fromkeys(names, "content"), "__MACOSX/x": "-", "../outside": "-"}
    files = {name: [put_zip(tmp_path / "served" / f"{name}.zip", members)]}
    downloads = Downloads(out=tmp_path / "out", mirror=server.url)
    for _ in range(2):
        folder = obtain_task(task, downloads, files)
    assert len(server.requests) == 1
    for split in ("train", *task.scored):
        assert task_file(task, folder, split).read_text() == "content"
    assert not list(tmp_path.rglob("outside"))


def test_mrpc_is_split_by_glues_identifiers(tmp_path: Path, server: Server) -> None:
    heading, *rows = official("mrpc").strip().split("\n")
    rows = [row.replace("\t1\t2\t", f"\t{n}\t{n + 9}\t") for n, row in enumerate(rows)]
    served = tmp_path / "served"
    whole, identifiers = served / "whole.txt", served / "ids.tsv"
    whole.write_text("\ufeff" + "\r\n".join([heading, *rows]) + "\r\n")
    identifiers.write_text("1\t10\n3\t12\n")
    files = {"mrpc": [remote(whole), remote(identifiers)]}
    downloads = Downloads(out=tmp_path, mirror=server.url)
    folder = obtain_task(TASKS["mrpc"], downloads, files)
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
    monkeypatch.setitem(understanding.FILES, "squad1", [remote(path) for path in paths])
    words = ["squad1", "--text", str(language_text), "--mirror", server.url, "--block", "64"]
    monkeypatch.setattr(sys, "argv", ["squad.sh", *words, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as caught:
        understanding.run_suite("squad")
    assert caught.value.code == 0
    assert open_task(tmp_path / "out").task.name == "squad1"


def test_wikitext_is_downloaded_once(tmp_path: Path, server: Server) -> None:
    articles = "".join(f" = Article {n} = \n {line} \n" for n, line in enumerate(LINES[:60]))
    names = [f"wikitext-103/wiki.{split}.tokens" for split in ("train", "valid", "test")]
    file = put_zip(tmp_path / "served" / "wikitext.zip", dict.fromkeys(names, articles))
    corpus = WikiText103(
        out=tmp_path / "data", vocab_size=150, workers=1, mirror=server.url, file=file
    )
    data = corpus.prepare()
    before = times(data)
    assert corpus.prepare() == data
    assert times(data) == before
    assert len(server.requests) == 1
    raw = (data / "raw" / "train.txt").read_text()
    assert len(raw.split("\n\n")) == 60
