"""WikiText-103 (Merity et al. 2017) as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import option
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import ORIGINAL
from fairseq_mhe.prepare.corpora.known import Downloads, default_out
from fairseq_mhe.prepare.corpora.language_corpora import PublishedText, run_published
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import Counts, open_manifest
from fairseq_mhe.prepare.progress import Report

#: At its author's site; the first address is gone. Size and SHA-256 are those of the first one's
#: (datasets 2.x of Hugging Face, DataDeps of Julia).
ARCHIVE = RemoteFile(
    "https://wikitext.smerity.com/wikitext-103-v1.zip",
    190_229_076,
    "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
)
_INSIDE = "wikitext-103"


@dataclass(frozen=True, kw_only=True)
class WikiText103(Downloads, PublishedText):
    """Articles are documents. The text of the archive ``file``, or of ``folder``."""

    script = "wikitext103.sh"
    names = (
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("wiki.train.raw", "wiki.valid.raw", "wiki.test.raw"),
    )
    articles = True

    folder: Any = option(
        None, "where the published files are, unpacked; nothing is downloaded", type=Path
    )
    out: Path = default_out("runs/wikitext103-data")
    file: RemoteFile = ARCHIVE

    def place(self, report: Report) -> Path:
        """The given folder, or that of the downloaded archive's files."""
        if self.folder is not None:
            given: Path = self.folder
            return given
        original = self.out / ORIGINAL

        def action(work: Path) -> Counts:
            (archive,) = self.obtained([self.file], original, report)
            extract(archive, [f"{_INSIDE}/{name}" for name in self.names[0]], work)
            return {}

        with open_manifest(original, {"corpus": "wikitext103"}) as steps:
            steps.run("extract", {"archive": self.file.name, "sha256": self.file.sha256}, action)
            steps.write("complete")
        return original / _INSIDE


if __name__ == "__main__":
    run_published(WikiText103, __doc__)
