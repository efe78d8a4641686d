"""The scripts own_corpus, iwslt14 and multi30k on miniatures, and what each says of bad input.

WMT14's script has tests of its own, and the experiments' tests run on what it makes.
"""

from __future__ import annotations

import gzip
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairseq_mhe.common.steps import WORK_PREFIX
from fairseq_mhe.prepare.corpora import iwslt14, multi30k
from fairseq_mhe.prepare.manifest import read_manifest
from tests.fixtures.miniature import serve, write_archive
from tests.fixtures.text import Pairs
from tests.prepare.corpora.test_iwslt14 import members as iwslt14_members

SCRIPTS = Path(__file__).resolve().parents[2] / "data-prep"
#: File -> content, what a script takes.
Files = dict[str, bytes]
#: Script -> the file of train's German side.
TRAIN = {
    "own_corpus.sh": "train.de",
    "iwslt14_de_en.sh": iwslt14.TRAIN.format(lang="de"),
    "multi30k_en_de.sh": "train.de",
}


@pytest.fixture
def inputs(corpus: dict[str, Pairs]) -> Callable[[str], Files]:
    """The files that a script takes, of the embedded corpus."""

    def make(script: str) -> Files:
        if script == "iwslt14_de_en.sh":
            return {name: text.encode() for name, text in iwslt14_members(corpus["train"]).items()}
        names = (
            multi30k.NAMES
            if script == "multi30k_en_de.sh"
            else {name: name for name in multi30k.NAMES}
        )
        return {
            f"{name}.{lang}": "".join(f"{pair[side]}\n" for pair in corpus[split][:60]).encode()
            for split, name in names.items()
            for side, lang in enumerate(("en", "de"))
        }

    return make


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server of what lies in ``served``."""
    (tmp_path / "served").mkdir()
    with serve(tmp_path / "served") as server:
        yield server.url


def words(script: str, files: Files, folder: Path, server: str) -> list[str]:
    """Put the files where the script will take them, and return its options."""
    common = ["--out", str(folder / "the data"), "--vocab-size", "100", "--workers", "1"]
    if script == "iwslt14_de_en.sh":
        write_archive(folder / "served" / "de-en.tgz", files)
        return [*common, "--mirror", server]
    (folder / "text").mkdir()
    for name, content in files.items():
        if script == "multi30k_en_de.sh":
            (folder / "text" / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / "text" / name).write_bytes(content)
    if script == "multi30k_en_de.sh":
        return [*common, "--folder", str(folder / "text")]
    texts = [
        word
        for split in ("train", "valid", "test")
        for word in (f"--{split}", str(folder / "text" / split))
    ]
    return [*common, *texts, "--source-lang", "en", "--target-lang", "de"]


@pytest.mark.parametrize("script", TRAIN)
def test_a_miniature_becomes_a_data_folder(
    script: str, inputs: Callable[[str], Files], tmp_path: Path, served: str
) -> None:
    line = ["bash", str(SCRIPTS / script), *words(script, inputs(script), tmp_path, served)]
    done = subprocess.run(
        line,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    data = tmp_path / "the data"
    assert (done.returncode, done.stdout) == (0, f"{data}\n"), done.stderr
    manifest = read_manifest(data)
    assert manifest["state"] == "complete"
    pair = f"{manifest['source_lang']}-{manifest['target_lang']}"
    assert pair == ("de-en" if script == "iwslt14_de_en.sh" else "en-de")
    assert all(count > 0 for count in manifest["lines"].values())
    assert all(
        (data / "bin" / f"{split}.{pair}.{lang}.bin").stat().st_size
        for split in manifest["lines"]
        for lang in ("en", "de")
    )
    assert ("known are" in done.stderr) == (script != "own_corpus.sh")


def run_here(script: str, line: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """What the script runs, here, where everything is imported already; the exit status."""
    started = re.search(r'prepare.sh" (\S+) ?(\w*) "\$@"', (SCRIPTS / script).read_text())
    assert started
    module, first = started.groups()
    monkeypatch.setattr(sys, "argv", [script, *first.split(), *line])
    with (
        pytest.raises(SystemExit) as caught,
        pytest.warns(RuntimeWarning, match="found in sys.modules"),
    ):
        runpy.run_module(module, run_name="__main__")
    return caught.value.code


@pytest.mark.parametrize("script", TRAIN)
def test_bad_input_is_one_line_and_leaves_nothing(
    script: str,
    inputs: Callable[[str], Files],
    tmp_path: Path,
    served: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One side lacks its last line."""
    files, train = inputs(script), TRAIN[script]
    files[train] = b"".join(files[train].splitlines(keepends=True)[:-1])
    assert run_here(script, words(script, files, tmp_path, served), monkeypatch) == 2
    printed = capsys.readouterr()
    name = "fairseq-mhe prepare" if script == "own_corpus.sh" else script
    message = r"has \d+ lines, .* has \d+: the sides of a parallel text must be aligned"
    assert re.fullmatch(rf"{name}: error: .*{message}.*", printed.err.strip().splitlines()[-1])
    assert printed.out == ""
    data = tmp_path / "the data"
    assert not any((data / name).exists() for name in ("raw", "tokenised", "subword", "bin"))
    assert not list(data.rglob(f"{WORK_PREFIX}*"))
