"""Published corpora of language modelling: three files that are train, valid and test.

They are published as text that is tokenised and in which rare words are <unk>; perplexities are of
words. With subwords, as here, they are of subwords, and comparable with each other only.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from fairseq_mhe.prepare.progress import Report
from fairseq_mhe.prepare.running_text import TextConfig, TextOptions, prepare_text


@dataclass(frozen=True, kw_only=True)
class PublishedText(TextOptions):
    """A published corpus; the subclass gets its files.

    ``names``: of train, valid and test; ``documents``: as in `TextConfig`.
    """

    script: ClassVar[str]
    names: ClassVar[tuple[str, str, str]]
    documents: ClassVar[str]

    out: Path

    def make(self, folder: Path, report: Report) -> Path:
        """The data folder of the files in ``folder``; raises UserError as `prepare_text`."""
        train, valid, test = (folder / name for name in self.names)
        shared = {each.name: getattr(self, each.name) for each in fields(TextOptions)}
        config = TextConfig(
            train=(train,), valid=valid, test=test, out=self.out, documents=self.documents, **shared
        )
        return prepare_text(config, report, {"corpus": self.script.removesuffix(".sh")})
