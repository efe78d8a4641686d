"""Multi30k English-German as Wu et al. 2021 preprocessed it, for the row multi30k."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.corpora.known import default_out, run_corpus, warn_of_lines
from fairseq_mhe.prepare.corpora.multi30k import LINES
from fairseq_mhe.prepare.options import option
from fairseq_mhe.prepare.parallel_text import prepare_segmented
from fairseq_mhe.prepare.text import SUFFIXES

#: Split -> the name of its files.
NAMES = {"train": "train", "valid": "valid", "test": "test.2016"}


@dataclass(frozen=True, kw_only=True)
class Multi30kBpe:
    """Text that is lower-cased, tokenised and split by BPE; nothing is dropped or changed."""

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
        texts = {split: self.folder / name for split, name in NAMES.items()}
        codes = [self.folder / f"code{suffix}" for suffix in SUFFIXES]
        data = prepare_segmented(
            texts,
            ("en", "de"),
            self.out,
            codes=next((path for path in codes if path.is_file()), None),
            lowercase=True,
            source={"corpus": "multi30k-bpe"},
        )
        warn_of_lines(data, LINES)
        return data


if __name__ == "__main__":
    run_corpus("multi30k_bpe_en_de.sh", Multi30kBpe, Multi30kBpe.prepare, __doc__)
