"""Dictionary and binary form equal those of fairseq-preprocess."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_mhe.prepare.manifest import Counts, open_manifest
from fairseq_mhe.prepare.steps import make_binary, pair_texts
from tests.fixtures.text import Pairs

LANGS = ("en", "de")


def binarised(data: Path, texts: dict[str, str], workers: int) -> Path:
    """Binarise texts (name in subword/ -> content) in the data folder ``data``; return its bin/."""

    def write(work: Path) -> Counts:
        (work / "subword").mkdir()
        for name, text in texts.items():
            (work / "subword" / name).write_text(text, encoding="utf-8")
        return {}

    with open_manifest(data, "parallel", {}, workers) as manifest:
        manifest.run("segment", {}, write)
        make_binary(manifest, pair_texts(LANGS, "subword"))
    return data / "bin"


def test_files_equal_those_of_fairseq_preprocess(
    corpus: dict[str, Pairs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are blocks of few lines, words that only valid has, and an empty line."""
    monkeypatch.setattr("fairseq_mhe.prepare.steps.BINARY_BYTES", 1000)
    texts = {
        f"{split}.{lang}": "".join(f"{pair[side]}\n" for pair in corpus[split][:300])
        for split in ("train", "test")
        for side, lang in enumerate(LANGS)
    }
    odd = "New words ü\n\n new , \u2028 ones </s>\n"
    texts |= {"valid.en": odd, "valid.de": odd}
    ours = [binarised(tmp_path / f"ours {workers}", texts, workers) for workers in (1, 2)]
    options = "--source-lang en --target-lang de --trainpref train --validpref valid"
    options += " --testpref test --joined-dictionary --workers 2 --destdir ../theirs"
    line = [sys.executable, "-m", "fairseq_cli.preprocess", *options.split()]
    subprocess.run(line, cwd=ours[0].parent / "subword", check=True, capture_output=True)
    theirs = contents(ours[0].parent / "theirs")
    summary = theirs.pop("preprocess.log").decode()
    assert len(theirs) == 14
    for folder in ours:
        assert contents(folder) == theirs
        log = (folder.parent / "logs" / "binarise.log").read_text().splitlines()
        for line in log[1:]:
            name, lines, tokens, unknown = re.findall(r"^\S+(?=:)|\d+(?= [ltu])", line)
            percent = f"{100 * int(unknown) / int(tokens):.3}"
            assert f"{name}: {lines} sents, {tokens} tokens, {percent}% replaced" in summary


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
