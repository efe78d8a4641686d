"""Penn Treebank as language models read it (Mikolov et al. 2011), from a folder.

It is not downloaded, since its licence is not free.
"""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.known import TextCorpus, default_out, run_corpus
from fairseq_mhe.prepare.options import option
from fairseq_mhe.prepare.running_text import FILES


@dataclass(frozen=True, kw_only=True)
class PennTreebank(TextCorpus):
    """One document a split."""

    documents: str = FILES
    folder: Path = option(
        None, "where ptb.{train,valid,test}.txt are", type=Path, required=True
    )
    out: Path = default_out("runs/ptb-data")

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `make`."""
        return self.make("ptb", *(self.folder / f"ptb.{split}.txt" for split in SPLITS))


if __name__ == "__main__":
    run_corpus("ptb.sh", PennTreebank, PennTreebank.prepare, __doc__)
