"""WikiText-103 (Merity et al. 2017) as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.known import Downloads, TextCorpus, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile, extract
from fairseq_mhe.prepare.options import option
from fairseq_mhe.prepare.running_text import TITLES

#: At its author's site; the first address is gone. Size and SHA-256 are those of the first one's
#: (datasets 2.x of Hugging Face, DataDeps of Julia).
ARCHIVE = RemoteFile(
    "https://wikitext.smerity.com/wikitext-103-v1.zip",
    190_229_076,
    "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
)
_INSIDE = "wikitext-103"
_NAMES = [f"wiki.{split}.tokens" for split in SPLITS]


@dataclass(frozen=True, kw_only=True)
class WikiText103(Downloads, TextCorpus):
    """Articles are documents. The text of the archive, or of ``folder``."""

    documents: str = TITLES
    folder: Path | None = option(
        None, "where wiki.{train,valid,test}.tokens are; nothing is downloaded", type=Path
    )
    out: Path = default_out("runs/wikitext103-data")

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `make`."""
        if self.folder is None:
            self.unpack([ARCHIVE], _unpack)
        folder = self.folder or self.original / _INSIDE
        return self.make("wikitext103", *(folder / name for name in _NAMES))


def _unpack(archives: list[Path], work: Path) -> None:
    extract(archives[0], [f"{_INSIDE}/{name}" for name in _NAMES], work)


if __name__ == "__main__":
    run_corpus("wikitext103.sh", WikiText103, WikiText103.prepare, __doc__)
