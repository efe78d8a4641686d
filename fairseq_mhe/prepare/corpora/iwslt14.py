"""IWSLT14 German-English (TED talks; Cettolo et al. 2014), prepared as by fairseq's recipe, as a data folder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Unpack

from fairseq_mhe.common.files import sha256, write_text
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.command import (
    SubwordOptions,
    add_subword_arguments,
    settled,
    subword_options,
)
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig
from fairseq_mhe.prepare.corpora.source import (
    add_source_arguments,
    aligned_lines,
    archives_folder,
    count_warnings,
    finish,
    run_script,
)
from fairseq_mhe.prepare.download import RemoteFile, obtain_all
from fairseq_mhe.prepare.manifest import Counts, Report, open_manifest
from fairseq_mhe.prepare.pipeline import prepare, silent
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.text import read_lines

LANGS = ("de", "en")
MERGES = 10000
MAX_TOKENS = 175
HELD_OUT = 23  # every 23rd clean training pair is valid
LINES = {"train": 160_239, "valid": 7283, "test": 6750}
TRAIN = "de-en/train.tags.de-en.{lang}"
TEST = tuple(
    f"de-en/IWSLT14.{name}.de-en.{{lang}}.xml"
    for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
)
# No checksum of it is published, so what came is recorded, and the counts of lines are compared
# with the known ones.
ARCHIVE = RemoteFile("http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz")
NO_TEXT = ("<url>", "<talkid>", "<keywords>")
MARKS = re.compile(r"</?(?:title|description)>")
SEGMENT = re.compile(r'<seg id="[0-9]*">\s*(.*?)\s*</seg>')


def training_sentences(lines: Iterable[str]) -> Iterator[str]:
    """The text of a training file: titles and descriptions without their tags, and no other annotation."""
    for line in lines:
        if not any(mark in line for mark in NO_TEXT):
            yield MARKS.sub("", line)


def test_sentences(lines: Iterable[str]) -> Iterator[str]:
    """The sentences of a test set's XML file."""
    for line in lines:
        if match := SEGMENT.search(line):
            yield match[1].replace("\u2019", "'")


def fetch(
    out: Path, archives: Path, mirror: str | None, report: Report, file: RemoteFile
) -> dict[str, Any]:
    """Put the plain text, train and test, into the folder ``out``, and return what the manifest says of it."""
    with open_manifest(out, {"corpus": "iwslt14"}) as steps:

        def action(work: Path) -> Counts:
            (archive,) = obtain_all([file], archives, report, mirror)
            members = [name.format(lang=lang) for name in (TRAIN, *TEST) for lang in LANGS]
            extract(archive, members, work / "de-en")
            for lang in LANGS:
                unpacked = [work / "de-en" / name.format(lang=lang) for name in (TRAIN, *TEST)]
                train = training_sentences(read_lines(unpacked[0]))
                test = (line for path in unpacked[1:] for line in test_sentences(read_lines(path)))
                for name, lines in (("train", train), ("test", test)):
                    write_text(work / f"{name}.{lang}", "".join(f"{line}\n" for line in lines))
                for path in unpacked:
                    path.unlink()
            for name in ("train", "test"):
                aligned_lines(*(work / f"{name}.{lang}" for lang in LANGS))
            return {"sha256": sha256(archive)}

        found = steps.run("extract", {"archive": file.name, "sha256": file.sha256}, action)
        steps.write("complete")
    return {"corpus": "iwslt14", "archives": {file.name: found["sha256"]}, "known_lines": LINES}


def prepare_iwslt14(
    out: Path,
    *,
    archives: Path | None = None,
    mirror: str | None = None,
    report: Report = silent,
    file: RemoteFile = ARCHIVE,
    **subwords: Unpack[SubwordOptions],
) -> Path:
    """Make the data folder ``out`` of IWSLT14 German-English, or what of it is not there yet, and return its path.

    ``archives``: where the archive ``file`` is, or is downloaded to (from ``mirror``).

    Raises:
        UserError: as `prepare`; or the archive cannot be had or lacks a member.
    """
    original = out / ORIGINAL
    source = fetch(original, archives_folder(out, archives), mirror, report, file)
    config = PrepareConfig(
        train=(original / "train",),
        valid=None,
        test=original / "test",
        source_lang=LANGS[0],
        target_lang=LANGS[1],
        out=out,
        max_tokens=MAX_TOKENS,
        lowercase=True,
        hold_out=HELD_OUT,
        **settled(subwords, MERGES),
    )
    return prepare(config, report, source)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add_source_arguments(parser, Path("runs/iwslt14-data"))
    add_subword_arguments(parser, "bpe", MERGES)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    with shown_progress() as report:
        prepare_iwslt14(
            args.out,
            archives=args.archives,
            mirror=args.mirror,
            report=report,
            **subword_options(args),
        )
    finish(args.out, count_warnings(args.out))


if __name__ == "__main__":
    run_script("iwslt14_de_en.sh", __doc__, add_arguments, run)
