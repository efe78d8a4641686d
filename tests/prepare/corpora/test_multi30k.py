"""Tests of Multi30k's preparation, from a server and from a folder."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.corpora.known import count_warnings
from fairseq_mhe.prepare.corpora.multi30k import FILES, NAMES, Multi30k
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.miniature import serve
from tests.fixtures.text import Pairs


@pytest.fixture
def served(tmp_path: Path, corpus: dict[str, Pairs]) -> Path:
    folder = tmp_path / "served"
    folder.mkdir()
    for split, name in NAMES.items():
        for side, lang in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in corpus[split][:60])
            (folder / f"{name}.{lang}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return folder


def test_from_the_network_and_from_a_folder_it_is_the_same(
    served: Path, tmp_path: Path
) -> None:
    paths = [served / file.name for file in FILES]
    files = tuple(
        RemoteFile(f"http://127.0.0.1:9/{p.name}", p.stat().st_size, sha256(p)) for p in paths
    )
    archives = tmp_path / "one" / "original" / "archives"
    archives.mkdir(parents=True)
    (archives / "train.en").write_text("another text\n" * 60)  # nobody has verified it
    with serve(served) as server:
        one = Multi30k(
            out=tmp_path / "one", mirror=server.url, vocab_size=100, workers=1, files=files
        ).prepare()
    two = Multi30k(out=tmp_path / "two", folder=served, vocab_size=100, workers=1).prepare()
    assert read_manifest(one) == read_manifest(two)
    assert read_manifest(one)["lines"] == {"train": 60, "valid": 60, "test": 60}
    assert count_warnings(one)[0] == "train has 60 lines, known are 29,000"
