"""Multi30k English-German (image captions; Elliott et al. 2016), task 1, in two forms."""

import gzip
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.config import SPLITS, option, vocabulary
from fairseq_mhe.prepare.corpora.known import (
    Downloads,
    PairCorpus,
    default_out,
    warn_of_lines,
)
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.parallel_text import prepare_segmented
from fairseq_mhe.prepare.text import SUFFIXES

#: The names of train, valid and test, as published and as preprocessed.
NAMES = ("train", "val", "test_2016_flickr")
_BPE_NAMES = ("train", "valid", "test.2016")
_LINES = {"train": 29_000, "valid": 1014, "test": 1000}
_COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
_PLACE = f"https://raw.githubusercontent.com/multi30k/dataset/{_COMMIT}/data/task1/raw"
_SIZES_AND_CHECKSUMS = """
train.en.gz            568929 d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
train.de.gz            637044 726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
val.en.gz               21650 14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
val.de.gz               24681 f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
test_2016_flickr.en.gz  21077 611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
test_2016_flickr.de.gz  22890 9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
"""
FILES = [
    RemoteFile(f"{_PLACE}/{name}", int(size), checksum)
    for name, size, checksum in map(str.split, _SIZES_AND_CHECKSUMS.strip().split("\n"))
]


@dataclass(frozen=True, kw_only=True)
class Multi30k(Downloads, PairCorpus):
    """Multi30k, the text as published: pairs of any length ratio."""

    out: Path = default_out("runs/multi30k-data")
    vocab_size: int = vocabulary(10000)
    max_ratio: float | None = None
    punctuation: bool = True
    lowercase: bool = option(False, "write everything in small letters")

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `make`."""
        self.unpack(FILES, _unpack)
        train, valid, test = (self.original / name for name in NAMES)
        return self.make("multi30k", _LINES, train=(train,), valid=valid, test=test)


def _unpack(paths: list[Path], work: Path) -> None:
    for path in paths:
        (work / path.stem).write_bytes(gzip.decompress(path.read_bytes()))


@dataclass(frozen=True, kw_only=True)
class Multi30kBpe:
    """Multi30k as Wu et al. 2021 preprocessed it, for the row multi30k: nothing is dropped."""

    folder: Path = option(
        None,
        "where {train,valid,test.2016}.{en,de} lie, lower-cased, tokenised and split by BPE (plain "
        "or compressed), and the file code of its merges, if there is one",
        type=Path,
        required=True,
    )
    out: Path = default_out("runs/multi30k-bpe-data")

    def prepare(self) -> Path:
        """Make the data folder, or what is missing; raises UserError as `prepare_segmented`."""
        codes = [self.folder / f"code{suffix}" for suffix in SUFFIXES]
        data = prepare_segmented(
            dict(zip(SPLITS, (self.folder / name for name in _BPE_NAMES), strict=True)),
            ("en", "de"),
            self.out,
            codes=next((path for path in codes if path.is_file()), None),
            lowercase=True,
            source={"corpus": "multi30k-bpe"},
        )
        warn_of_lines(data, _LINES)
        return data
