"""WikiText-103 (Merity et al. 2017) as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.arguments import option
from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import ORIGINAL
from fairseq_mhe.prepare.corpora.known import Downloads, default_out, run_corpus
from fairseq_mhe.prepare.corpora.published_text import PublishedText
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.progress import Report, silent
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
    names = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
    documents = TITLES

    folder: Path | None = option(
        None, "where wiki.{train,valid,test}.tokens are; nothing is downloaded", type=Path
    )
    out: Path = default_out("runs/wikitext103-data")
    file: RemoteFile = ARCHIVE

    def prepare(self, report: Report = silent) -> Path:
        """Make the data folder, or what of it is missing.

        Raises:
            UserError: as `prepare_text`, or the archive cannot be had or is another one.
        """
        folder = self.folder
        if folder is None:
            self.unpacked("wikitext103", [self.file], self.out, self._unpack, report)
            folder = self.out / ORIGINAL / _INSIDE
        return self.make(folder, report)

    def _unpack(self, archives: list[Path], work: Path) -> None:
        extract(archives[0], [f"{_INSIDE}/{name}" for name in self.names], work)


if __name__ == "__main__":
    run_corpus(WikiText103, __doc__)
