"""Multi30k English-German (image captions; Elliott et al. 2016), task 1, as a data folder."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.prepare.config import Inputs, vocabulary
from fairseq_mhe.prepare.corpora.known import Corpus, Downloads, default_out, run_corpus
from fairseq_mhe.prepare.download import RemoteFile
from fairseq_mhe.prepare.options import option
from fairseq_mhe.prepare.text import side_path

NAMES = {
    "train": "train",
    "valid": "val",
    "test": "test_2016_flickr",
}  # split -> its name there
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
FILES = tuple(
    RemoteFile(f"{_PLACE}/{name}", int(size), checksum)
    for name, size, checksum in map(str.split, _SIZES_AND_CHECKSUMS.strip().split("\n"))
)


@dataclass(frozen=True, kw_only=True)
class Multi30k(Downloads, Corpus):
    """The text of ``files``, or of the same names in ``folder``; no pair is dropped for lengths."""

    out: Path = default_out("runs/multi30k-data")
    vocab_size: int = vocabulary(10000)
    folder: Path | None = option(
        None,
        "take {train,val,test_2016_flickr}.{en,de} (plain or compressed) from there; "
        "nothing is downloaded",
        type=Path,
    )
    lowercase: bool = option(False, "everything in small letters")
    files: tuple[RemoteFile, ...] = FILES

    def prepare(self) -> Path:
        """Make the data folder, or what of it is missing; raises UserError as `Corpus.make`."""
        if self.folder is None:
            paths = self.download(self.files)
        else:
            prefixes = [self.folder / name for name in NAMES.values()]
            paths = [side_path(prefix, lang) for prefix in prefixes for lang in self.langs]
        source = {"corpus": "multi30k", "known_lines": _LINES}
        sides = zip(paths[::2], paths[1::2], strict=True)
        files: Inputs = {split: [pair] for split, pair in zip(NAMES, sides, strict=True)}
        recipe = {"max_ratio": None, "punctuation": True, "lowercase": self.lowercase}
        return self.make(files, source, **recipe)


if __name__ == "__main__":
    run_corpus("multi30k_en_de.sh", Multi30k, Multi30k.prepare, __doc__)
