"""Published corpora of language modelling, from folders of their files.

They are published as text that is tokenised and in which rare words are <unk>; perplexities are of
words. With subwords, as here, they are of subwords, and comparable with each other only.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.running_text import TextConfig, TextOptions, prepare_text


@dataclass(frozen=True, kw_only=True)
class PublishedText(TextOptions):
    """A corpus from the ``folder`` of its files.

    ``names``: what train, valid and test may be called; ``documents``: as in `TextConfig`.
    """

    script: ClassVar[str]
    names: ClassVar[tuple[tuple[str, str, str], ...]]
    documents: ClassVar[str]

    folder: Path | None = option(
        None, "where the published files are, unpacked", type=Path, required=True
    )
    out: Path

    def place(self, report: Report) -> Path:
        """The folder of the files."""
        assert self.folder is not None  # noqa: S101 - argparse requires it
        return self.folder

    def prepare(self, report: Report = silent) -> Path:
        """Make the data folder, or what of it is missing, and return its path.

        Raises:
            UserError: as `prepare_text`, or a file is missing or cannot be had.
        """
        files = self._files(self.place(report))
        checksums = {path.name: sha256(path) for path in files}
        source = {"corpus": self.script.removesuffix(".sh"), "archives": checksums}
        shared = {each.name: getattr(self, each.name) for each in fields(TextOptions)}
        train, valid, test = files
        config = TextConfig(
            train=(train,), valid=valid, test=test, out=self.out, documents=self.documents, **shared
        )
        return prepare_text(config, report, source)

    def _files(self, folder: Path) -> list[Path]:
        """The files of train, valid and test.

        Raises:
            UserError: one is missing.
        """
        for names in self.names:
            paths = [folder / name for name in names]
            if all(path.is_file() for path in paths):
                return paths
        wanted = " or ".join(", ".join(names) for names in self.names)
        raise UserError(
            f"{folder} has not all of {wanted} ({', '.join(SPLITS)}): unpack the published archive "
            "there"
        )
