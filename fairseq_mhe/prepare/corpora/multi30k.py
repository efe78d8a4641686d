"""Multi30k English-German (image captions; Elliott et al. 2016), task 1, in two forms."""

import gzip
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from fairseq_mhe.common.arguments import option
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import vocabulary
from fairseq_mhe.prepare.corpora.known import (
    KNOWN,
    Downloads,
    PairCorpus,
    out_option,
    warn_of_lines,
)
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, open_manifest
from fairseq_mhe.prepare.steps import hashes_of, make_binary, pair_texts
from fairseq_mhe.prepare.subword import MODEL_NAMES
from fairseq_mhe.prepare.text import (
    SUFFIXES,
    read_lines,
    read_pairs,
    side_path,
    write_lines,
)
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.prepare.tokenise import ESCAPED

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
        """Make the data folder and return its path; errors as in `parallel_text.prepare`.

        Every line stays as it is; undoing subwords, escapes (``&apos;``) and tokens gives raw/.
        """
        langs = ("en", "de")
        text = TextProcessing(*langs, ESCAPED, "bpe", lowercase=True)
        sides = {}
        for split, name in BPE_NAMES.items():
            sides[split] = tuple(side_path(self.folder / name, lang) for lang in langs)
        merges = [self.folder / f"code{suffix}" for suffix in SUFFIXES]
        codes = list(filter(Path.is_file, merges))[:1]  # they segment new text

        def action(work: Path) -> Counts:
            for folder in ("subword", "raw"):
                (work / folder).mkdir()
            for path in codes:
                write_lines(work / "subword" / MODEL_NAMES["bpe"], read_lines(path))
            lines = {}
            for split, paths in sides.items():
                for side, column in enumerate(zip(*read_pairs(paths), strict=True)):
                    lines[split] = len(column)
                    name = f"{split}.{langs[side]}"
                    write_lines(work / "subword" / name, column)
                    write_lines(work / "raw" / name, text.plain(column, side))
            return lines

        facts = {"text_spec": text.stored, "source": {"corpus": "multi30k-bpe"}}
        inputs = hashes_of({"inputs": [*chain(*sides.values()), *codes]}, cores())
        with open_manifest(self.out, PARALLEL, facts, cores()) as manifest:
            lines = manifest.run("segment", inputs, action)
            make_binary(manifest, pair_texts(langs, "subword"))
            manifest.complete(lines=lines)
        warn_of_lines(self.out, "multi30k")
        return self.out
