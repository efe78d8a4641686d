"""Multi30k English-German (image captions; Elliott et al. 2016), task 1, in two forms."""

import gzip
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.arguments import option
from fairseq_mhe.prepare.config import vocabulary
from fairseq_mhe.prepare.corpora.known import (
    KNOWN,
    Downloads,
    PairCorpus,
    out_option,
    warn_of_lines,
)
from fairseq_mhe.prepare.segmented_text import prepare_segmented
from fairseq_mhe.prepare.text import SUFFIXES

#: The file names of train, valid and test: as published, and as Wu et al. 2021 name them.
NAMES = ("train", "val", "test_2016_flickr")
BPE_NAMES = {"train": "train", "valid": "valid", "test": "test.2016"}


@dataclass(frozen=True)
class Multi30k(Downloads, PairCorpus):
    """Prepare Multi30k from the published text; no pair is dropped."""

    out: Path = out_option("runs/multi30k-data")
    vocab_size: int = vocabulary(10000)
    punctuation: bool = True

    def prepare(self) -> Path:
        self.unpack(KNOWN["multi30k"]["files"], _unpack)
        train, valid, test = (self.original / name for name in NAMES)
        return self.make("multi30k", train=(train,), valid=valid, test=test)


def _unpack(paths: list[Path], work: Path) -> None:
    for path in paths:
        (work / path.stem).write_bytes(gzip.decompress(path.read_bytes()))


@dataclass(frozen=True)
class Multi30kBpe:
    """Prepare Multi30k as Wu et al. 2021 preprocessed it, for the row multi30k; drop no pair."""

    folder: Path = option(
        None,
        "folder of {train,valid,test.2016}.{en,de} (lower-case Moses tokens in BPE subwords) and, "
        "optionally, the BPE merges as code; plain or compressed",
        type=Path,
        required=True,
    )
    out: Path = out_option("runs/multi30k-bpe-data")

    def prepare(self) -> Path:
        """Make the data folder and return its path; raises UserError as `prepare_segmented`."""
        texts = {split: self.folder / name for split, name in BPE_NAMES.items()}
        merges = [self.folder / f"code{suffix}" for suffix in SUFFIXES]
        codes = next(filter(Path.is_file, merges), None)
        source = {"corpus": "multi30k-bpe"}
        data = prepare_segmented(texts, ("en", "de"), self.out, codes, source)
        warn_of_lines(data, "multi30k")
        return data
