"""WikiText-103 (Merity et al. 2017) as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.archive import extract
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.known import Downloads, TextCorpus, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.options import option
from fairseq_mhe.prepare.running_text import TITLES

#: At its author's site; the first address is gone. Size and SHA-256 are those of the first one's
#: (datasets 2.x of Hugging Face, DataDeps of Julia).
ARCHIVE = RemoteFile(
    "https://wikitext.smerity.com/wikitext-103-v1.zip",
    190_229_076,
    "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
)
_MEMBERS = [f"wikitext-103/wiki.{split}.tokens" for split in SPLITS]


@dataclass(frozen=True, kw_only=True)
class WikiText103(Downloads, TextCorpus):
    """Articles are documents. The text of the archive ``file``, or of ``folder``."""

    folder: Path | None = option(
        None, "where wiki.{train,valid,test}.tokens are; nothing is downloaded", type=Path
    )
    out: Path = default_out("runs/wikitext103-data")
    file: RemoteFile = ARCHIVE

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `prepare_text`."""
        if self.folder is None:
            self.unpack([self.file], _unpack)
            files = [self.original / name for name in _MEMBERS]
        else:
            files = [self.folder / Path(name).name for name in _MEMBERS]
        return self.make("wikitext103", files, TITLES)


def _unpack(archives: list[Path], work: Path) -> None:
    extract(archives[0], _MEMBERS, work)


if __name__ == "__main__":
    run_corpus("wikitext103.sh", WikiText103, WikiText103.prepare, __doc__)
