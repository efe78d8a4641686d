"""Running text of one's own, documents with empty lines between them, as a folder to train on."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fairseq_mhe.prepare.corpora.known import run_corpus
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text


@dataclass(frozen=True, kw_only=True)
class OwnText(TextConfig):
    """The options of ``text.sh``."""

    script: ClassVar[str] = "text.sh"

    def prepare(self, report: Report = silent) -> Path:
        """As `prepare_text`."""
        return prepare_text(self, report)


if __name__ == "__main__":
    run_corpus(OwnText, __doc__)
