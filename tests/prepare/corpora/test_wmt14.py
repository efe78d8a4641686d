"""WMT14 on the miniature: the whole chain, what can go wrong on the way, and kill -9."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import IncompleteRead
from pathlib import Path
from tarfile import ReadError

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.corpora import wmt14
from fairseq_mhe.prepare.corpora.known import count_warnings
from fairseq_mhe.prepare.corpora.wmt14 import WMT14, Wmt14
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.miniature import Miniature, Server, make_miniature, serve, write_archive
from tests.prepare.test_parallel_text import snapshot, times

SCRIPT = Path(__file__).resolve().parents[3] / "data-prep" / "wmt14_en_de.sh"
MERGES = 300
KILLS = 6


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Miniature:
    return make_miniature(tmp_path_factory.mktemp("a miniature"))


@pytest.fixture
def miniature(whole: Miniature, tmp_path: Path) -> Miniature:
    """One that a test may spoil."""
    shutil.copytree(whole.folder, tmp_path / "mini")
    mini = tmp_path / "mini"
    return Miniature(mini, mini / "archives", mini / "newstest", mini / "catalogue.json")


@pytest.fixture
def server(miniature: Miniature) -> Iterator[Server]:
    with serve(miniature.archives) as running:
        yield running


def prepare_from(miniature: Miniature, server: Server, out: Path, **options: object) -> Path:
    return Wmt14(
        out=out,
        catalogue=miniature.catalogue,
        newstest=miniature.newstest,
        mirror=server.url,
        vocab_size=MERGES,
        workers=1,
        **options,  # type: ignore[arg-type]
    ).prepare()


def command(miniature: Miniature, server: Server, out: Path) -> list[str]:
    words = [*miniature.options(server.url), "--vocab-size", str(MERGES), "--workers", "2"]
    return ["bash", str(SCRIPT), "--out", str(out), *words]


def run_script(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def spoil(miniature: Miniature, name: str, members: dict[str, str]) -> None:
    """Another archive in the place of one, with the catalogue in step."""
    path = write_archive(miniature.archives / name, members)
    content = json.loads(miniature.catalogue_file.read_text())
    entry = next(entry for entry in content["corpora"] if entry["url"].endswith(name))
    entry.update(size=path.stat().st_size, sha256=wmt14.sha256(path))
    miniature.catalogue_file.write_text(json.dumps(content))


def test_from_archives_to_data(miniature: Miniature, server: Server, tmp_path: Path) -> None:
    data = prepare_from(miniature, server, tmp_path / "data")
    manifest = read_manifest(data)
    assert manifest["state"] == "complete"
    assert [name for name, _ in server.requests] == [
        f"/{corpus.file.name}" for corpus in WMT14.chosen("v9")
    ]
    assert manifest["steps"]["clean"]["counts"]["train"]["read"] == 900
    assert manifest["source"]["lines"]["europarl-v7"] == 300
    assert (
        manifest["source"]["archives"]["training-parallel-nc-v9.tgz"]
        == miniature.catalogue.corpora[2].file.sha256
    )
    assert manifest["lines"]["valid"] == manifest["lines"]["test"] == 20
    for lang in ("en", "de"):
        assert (data / "raw" / f"test.{lang}").read_text() == (
            miniature.newstest / f"newstest2014.{lang}"
        ).read_text()
    before = times(data)
    prepare_from(miniature, server, data)
    assert times(data) == before
    assert count_warnings(data) == []


def test_the_test_sets_are_scored_as_they_are_but_the_model_sees_plain_quotes(
    miniature: Miniature, server: Server, tmp_path: Path
) -> None:
    for lang in ("en", "de"):
        with (miniature.newstest / f"newstest2014.{lang}").open("a", encoding="utf-8") as stream:
            stream.write("„So“ \u2013 das…\n")
    data = prepare_from(miniature, server, tmp_path / "data")
    assert (data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()[
        -1
    ] == "„So“ \u2013 das…"
    assert (data / "tokenised" / "test.de").read_text(encoding="utf-8").splitlines()[
        -1
    ] == '" So " - das ...'
    assert read_manifest(data)["options"]["punctuation"] is True
    assert count_warnings(data) == ["newstest2014 has 21 lines, known are 20"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {
                "training/europarl-v7.de-en.en": "a\nb\nc\n",
                "training/europarl-v7.de-en.de": "a\nb\n",
            },
            r"europarl-v7\.de-en\.en has 3 lines, europarl-v7\.de-en\.de has 2",
        ),
        (
            {"training/europarl-v7.de-en.en": "a\n"},
            r"europarl-v7\.tgz has no training/europarl-v7\.de-en\.de",
        ),
    ],
)
def test_a_bad_archive_is_told_and_leaves_nothing(
    miniature: Miniature, server: Server, tmp_path: Path, members: dict[str, str], message: str
) -> None:
    spoil(miniature, "training-parallel-europarl-v7.tgz", members)
    with pytest.raises(UserError, match=message) as caught:
        prepare_from(miniature, server, tmp_path / "data", archives=tmp_path / "archives")
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "data" / "original").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "error",
    [
        OSError("<urlopen error [Errno -2] Name or service not known>"),
        IncompleteRead(b"not known"),  # a connection that ends early
        ReadError("file could not be opened, its compression is not known"),
    ],
)
def test_without_a_network_the_test_sets_are_asked_for(
    miniature: Miniature,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: object) -> str:
        raise error

    monkeypatch.setattr("sacrebleu.get_source_file", fail)
    with pytest.raises(
        UserError, match=r"its test set wmt13 \(.*(not known|bytes read).*\); .* --newstest"
    ):
        Wmt14(
            out=tmp_path / "data", catalogue=miniature.catalogue, mirror=server.url, workers=1
        ).prepare()


def test_the_script_survives_kill_9_anywhere(whole: Miniature, tmp_path: Path) -> None:
    """The real script, killed at random moments and started again, ends as if run in one go."""
    with serve(whole.archives) as server:
        begun = time.monotonic()
        done = run_script(command(whole, server, tmp_path / "in one go"))
        lasts = time.monotonic() - begun
        assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'in one go'}\n"), done.stderr
        moments = random.Random(1)
        for _ in range(KILLS):
            process = subprocess.Popen(
                command(whole, server, tmp_path / "killed"),
                env={**os.environ, "PYTHON": sys.executable},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(moments.uniform(0.1, 0.9) * lasts)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert run_script(command(whole, server, tmp_path / "killed")).returncode == 0
    assert snapshot(tmp_path / "killed") == snapshot(tmp_path / "in one go")
    assert not list((tmp_path / "killed").rglob("*.part"))
