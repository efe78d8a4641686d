"""WikiText-103 (Merity et al. 2017) as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.arguments import option
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import ORIGINAL
from fairseq_mhe.prepare.corpora.known import Downloads, default_out, run_corpus
from fairseq_mhe.prepare.corpora.published_text import PublishedText
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.manifest import DOWNLOADED, Counts, open_manifest
from fairseq_mhe.prepare.progress import Report
from fairseq_mhe.prepare.running_text import TITLES

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
    documents = TITLES

    folder: Path | None = option(
        None, "where the published files are, unpacked; nothing is downloaded", type=Path
    )
    out: Path = default_out("runs/wikitext103-data")
    file: RemoteFile = ARCHIVE

    def place(self, report: Report) -> Path:
        """The given folder, or the one of the downloaded archive's files."""
        if self.folder is not None:
            return self.folder
        original = self.out / ORIGINAL

        def action(work: Path) -> Counts:
            (archive,) = self.obtained([self.file], original, report)
            extract(archive, [f"{_INSIDE}/{name}" for name in self.names[0]], work)
            return {}

        with open_manifest(original, {**DOWNLOADED, "corpus": "wikitext103"}) as manifest:
            made_from = {"archive": self.file.name, "sha256": self.file.sha256}
            manifest.run("extract", made_from, action)
            manifest.complete()
        return original / _INSIDE


if __name__ == "__main__":
    run_corpus(WikiText103, __doc__)
