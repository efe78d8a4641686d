"""WMT14 on the miniature: the whole chain, what can go wrong on the way, and kill -9."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.corpora.known import count_warnings
from fairseq_mhe.prepare.corpora.wmt14 import Wmt14
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.miniature import Miniature, Server, make_miniature, serve, write_archive
from tests.prepare.test_parallel_text import snapshot, times

KILLS = 6


@pytest.fixture
def miniature(tmp_path: Path) -> Miniature:
    return make_miniature(tmp_path / "a miniature")


@pytest.fixture
def server(miniature: Miniature) -> Iterator[Server]:
    with serve(miniature.archives) as running:
        yield running


def test_from_archives_to_data(miniature: Miniature, server: Server, tmp_path: Path) -> None:
    """The test sets are scored as they are, but the model sees plain quotes."""
    for lang in ("en", "de"):
        with (miniature.newstest / f"newstest2014.{lang}").open(
            "a", encoding="utf-8"
        ) as stream:
            stream.write("„So“ \u2013 das…\n")
    corpus = miniature.corpus(tmp_path / "data", server.url, vocab_size=300, workers=1)
    data = corpus.prepare()
    manifest = read_manifest(data)
    assert manifest["state"] == "complete"
    assert manifest["options"]["punctuation"] is True
    files = list(miniature.parts.values())[:3]
    assert [name for name, _ in server.requests] == [f"/{file.name}" for file in files]
    assert manifest["steps"]["clean"]["counts"]["train"]["read"] == 900
    assert manifest["lines"]["valid"] == 20
    for lang in ("en", "de"):
        text = (miniature.newstest / f"newstest2014.{lang}").read_text()
        assert (data / "raw" / f"test.{lang}").read_text() == text
    tokens = (data / "tokenised" / "test.de").read_text(encoding="utf-8")
    assert tokens.endswith('\n" So " - das ...\n')
    assert count_warnings(data) == [
        "valid has 20 lines, known are 3,000",
        "test has 21 lines, known are 3,003",
    ]
    before = times(data)
    corpus.prepare()
    assert times(data) == before


def test_an_archive_without_a_side_is_one_line_and_leaves_nothing(
    miniature: Miniature, server: Server, tmp_path: Path
) -> None:
    name = "training-parallel-europarl-v7.tgz"
    path = write_archive(miniature.archives / name, {"training/europarl-v7.de-en.en": "a\n"})
    part = replace(miniature.parts["europarl-v7"], size=None, sha256=None)
    spoilt = replace(miniature, parts={**miniature.parts, "europarl-v7": part})
    corpus = spoilt.corpus(
        tmp_path / "data", server.url, archives=tmp_path / "archives", workers=1
    )
    with pytest.raises(
        UserError, match=r"europarl-v7\.tgz has no training/europarl-v7\.de-en\.de"
    ):
        corpus.prepare()
    assert path.exists()
    assert [path.name for path in (tmp_path / "data" / "original").iterdir()] == [".lock"]


def test_without_a_network_the_test_sets_are_asked_for(
    miniature: Miniature, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise OSError("<urlopen error [Errno -2] Name or service not known>")

    monkeypatch.setattr("sacrebleu.get_source_file", fail)
    corpus = Wmt14(out=tmp_path / "data", parts=miniature.parts, mirror=server.url, workers=1)
    with pytest.raises(UserError, match=r"its test set wmt13 \(.*not known.*\); .* --newstest"):
        corpus.prepare()


def in_a_process(corpus: Wmt14) -> BaseProcess:
    """The preparation, in a process that is the first of a group."""

    def run() -> None:
        os.setsid()
        corpus.prepare()

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process


def test_it_survives_kill_9_anywhere(
    miniature: Miniature, server: Server, tmp_path: Path
) -> None:
    """Killed at random moments and started again, it ends as if run in one go."""
    corpus = miniature.corpus(tmp_path / "in one go", server.url, vocab_size=300, workers=2)
    begun = time.monotonic()
    in_a_process(corpus).join()
    lasts = time.monotonic() - begun
    moments = random.Random(1)
    corpus = replace(corpus, out=tmp_path / "killed")
    for _ in range(KILLS):
        process = in_a_process(corpus)
        time.sleep(moments.uniform(0.1, 0.9) * lasts)
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
    corpus.prepare()
    assert snapshot(tmp_path / "killed") == snapshot(tmp_path / "in one go")
    assert not list((tmp_path / "killed").rglob("*.part"))
