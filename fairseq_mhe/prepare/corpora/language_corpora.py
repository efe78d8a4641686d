"""Published corpora of language modelling, from folders of their files.

They are published as text that is tokenised and in which rare words are <unk>; perplexities are of
words. With subwords, as here, they are of subwords, and comparable with each other only.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import ClassVar

from fairseq_mhe.common.arguments import add_options, from_options, option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, sha256
from fairseq_mhe.prepare.config import SPLITS, SubwordChoice
from fairseq_mhe.prepare.corpora.known import run_script
from fairseq_mhe.prepare.progress import Report, shown_progress, silent
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text
from fairseq_mhe.prepare.text import read_lines

#: A heading of an article, = Title =; sections have two and more marks on each side.
_TITLE = re.compile(r" ?= [^=].* = ?")


@dataclass(frozen=True, kw_only=True)
class PublishedText(SubwordChoice):
    """A corpus from the ``folder`` of its files.

    ``names``: what train, valid and test may be called; ``articles``: whether headings like
    ``= Title =`` begin documents; else there is one.
    """

    script: ClassVar[str]
    names: ClassVar[tuple[tuple[str, str, str], ...]]
    articles: ClassVar[bool] = False

    folder: Path = option(None, "where the published files are, unpacked", type=Path, required=True)
    out: Path

    def place(self, report: Report) -> Path:
        """The folder of the files."""
        return self.folder

    def files(self, folder: Path) -> dict[str, Path]:
        """Split -> file.

        Raises:
            UserError: one is missing.
        """
        for names in self.names:
            paths = [folder / name for name in names]
            if all(path.is_file() for path in paths):
                return dict(zip(SPLITS, paths, strict=True))
        wanted = " or ".join(", ".join(names) for names in self.names)
        raise UserError(f"{folder} has not all of {wanted}: unpack the published archive there")

    def prepare(self, report: Report = silent) -> Path:
        """The folder of the corpus.

        Raises:
            UserError: as `prepare_text`, or a file is missing or cannot be had.
        """
        files = self.files(self.place(report))
        checksums = {path.name: sha256(path) for path in files.values()}
        source = {"corpus": self.script.removesuffix(".sh"), "archives": checksums}
        with tempfile.TemporaryDirectory() as place:
            texts = {split: Path(place) / path.name for split, path in files.items()}
            for split, path in files.items():
                lines = _with_documents(path, self.articles)
                with (
                    atomic_path(texts[split]) as temporary,
                    temporary.open("w", encoding="utf-8", newline="\n") as stream,
                ):
                    stream.writelines(f"{line}\n" for line in lines)
            shared = {each.name: getattr(self, each.name) for each in fields(SubwordChoice)}
            train, valid, test = texts.values()
            config = TextConfig(train=(train,), valid=valid, test=test, out=self.out, **shared)
            return prepare_text(config, report, source)


def _with_documents(path: Path, articles: bool) -> Iterator[str]:
    """The lines, with an empty one before each article."""
    for line in read_lines(path):
        if articles and _TITLE.fullmatch(line):
            yield ""
        if line.strip():
            yield line.strip()


def run_published(kind: type[PublishedText], description: str | None) -> None:
    """The script of a corpus."""

    def run(args: argparse.Namespace) -> None:
        with shown_progress() as report:
            print(from_options(kind, args).prepare(report))

    add_arguments = partial(add_options, options=kind, last=SubwordChoice)
    run_script(kind.script, description, add_arguments, run)
