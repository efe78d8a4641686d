"""Penn Treebank's text (Mikolov et al. 2011) from a folder, as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.corpora.known import default_out
from fairseq_mhe.prepare.corpora.language_corpora import PublishedText, run_published


@dataclass(frozen=True, kw_only=True)
class PennTreebank(PublishedText):
    """One document a split. Its licence is not free, so that it is not downloaded."""

    script = "ptb.sh"
    names = (("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),)

    out: Path = default_out("runs/ptb-data")


if __name__ == "__main__":
    run_published(PennTreebank, __doc__)
