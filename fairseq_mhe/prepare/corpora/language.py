"""Texts for language models: your own; WikiText-103 and Penn Treebank, with rare words as <unk>."""

from dataclasses import dataclass, replace
from pathlib import Path

from fairseq_mhe.common.archives import extract
from fairseq_mhe.common.arguments import option
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.corpora.known import KNOWN, Downloads, out_option
from fairseq_mhe.prepare.running_text import FILES, TITLES, TextConfig, prepare_text

_MEMBERS = [f"wiki.{split}.tokens" for split in SPLITS]


class OwnText(TextConfig):
    """Prepare your own text: UTF-8, one paragraph a line, empty lines between documents."""

    prepare = prepare_text


@dataclass(frozen=True)
class LanguageCorpus(TextConfig):
    """A text with published train, valid and test, which are not options."""

    train: tuple[Path, ...] = ()
    valid: Path | None = None
    test: Path | None = None
    hold_out: int | None = None
    lang: str = "en"

    def make(self, corpus: str, train: Path, valid: Path, test: Path) -> Path:
        """Make the data folder of three files; raises UserError as `prepare_text`."""
        texts = replace(self, train=(train,), valid=valid, test=test)
        return prepare_text(texts, {"corpus": corpus})


@dataclass(frozen=True)
class WikiText103(Downloads, LanguageCorpus):
    """Prepare WikiText-103 (Merity et al. 2017), one document an article."""

    documents: str = TITLES
    folder: Path | None = option(
        None, "folder of wiki.{train,valid,test}.tokens, to skip the download", type=Path
    )
    out: Path = out_option("runs/wikitext103-data")

    def prepare(self) -> Path:
        folder = self.folder or self.original / "wikitext-103"
        if not self.folder:
            members = [f"wikitext-103/{name}" for name in _MEMBERS]
            published = KNOWN["wikitext103"]["files"]
            self.unpack(published, lambda paths, work: extract(paths[0], work, members))
        return self.make("wikitext103", *map(folder.joinpath, _MEMBERS))


@dataclass(frozen=True)
class PennTreebank(LanguageCorpus):
    """Prepare Penn Treebank (Mikolov et al. 2011; not free), one document a split."""

    documents: str = FILES
    folder: Path = option(
        None, "folder of ptb.{train,valid,test}.txt", type=Path, required=True
    )
    out: Path = out_option("runs/ptb-data")

    def prepare(self) -> Path:
        return self.make("ptb", *(self.folder / f"ptb.{split}.txt" for split in SPLITS))
