"""What the preparations of text share: subwords are learnt, and texts in subwords made binary."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from fairseq.data.indexed_dataset import data_file_path

from fairseq_mhe.common.system import installed
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.binarise import binarise
from fairseq_mhe.prepare.config import SubwordChoice, SubwordOptions
from fairseq_mhe.prepare.manifest import Counts, Manifest
from fairseq_mhe.prepare.text import read_lines


def versions(*packages: str) -> dict[str, str]:
    """Of Python, fairseq, ours, and ``packages``, for the manifest's heading."""
    found = installed(("fairseq-mhe", "ve-fairseq", "fairseq", *packages))
    return {"python": platform.python_version(), **found}


def subword_version(steps: Manifest, kind: str) -> dict[str, str]:
    """The package that learns and applies subwords of a kind, and its version."""
    package = "sentencepiece" if kind == "sentencepiece" else "subword-nmt"
    return {package: steps.content["versions"][package]}


def learn(
    steps: Manifest, config: SubwordOptions | SubwordChoice, texts: Sequence[Path], lines: int
) -> subword.SubwordModel:
    """The subword model, from the clean training texts only, which have ``lines`` in all."""
    kind = config.subword
    options = {
        "subword": kind,
        "vocab_size": config.vocab_size,
        "model_type": config.model_type if kind == "sentencepiece" else None,
    }
    made = steps.files("clean", "sha256").items()
    inputs = {name: checksum for name, checksum in made if steps.folder / name in texts}
    made_from = {"inputs": inputs, "options": options, **subword_version(steps, kind)}

    def action(work: Path) -> Counts:
        path = work / "subword" / subword.MODEL_NAMES[kind]
        path.parent.mkdir()
        if kind == "sentencepiece":
            text = filter(None, chain.from_iterable(map(read_lines, texts)))
            subword.learn_sentencepiece(text, lines, config.vocab_size, config.model_type, path)
        else:
            words = subword.count_words(texts, config.cores)
            subword.learn_bpe_model(words, config.vocab_size, path)
        return {}

    steps.run("learn", made_from, action)
    (name, checksum), *_ = steps.files("learn", "sha256").items()
    return subword.SubwordModel(kind, steps.folder / name, checksum)


def make_binary(
    steps: Manifest,
    texts: Mapping[str, Path],
    dictionaries: Iterable[str],
    workers: int,
    room: float = 0,
    counted: bool = True,
) -> None:
    """fairseq's binary form: bin/, as `binarise` makes it.

    ``counted``: its words are recorded.
    """
    found = steps.content["versions"]
    fairseq = found.get("ve-fairseq") or found.get("fairseq")
    made_from = {"inputs": steps.files("segment", "sha256", "subword/"), "fairseq": fairseq}

    def action(work: Path) -> Counts:
        log = steps.folder / "logs" / "binarise.log"
        words = binarise(texts, dictionaries, work / "bin", workers, log)
        return {"dictionary": words} if counted else {}

    # fairseq translates in the direction that files are named after.
    made = [Path(data_file_path(str(steps.folder / "bin" / name))) for name in texts]
    steps.run("binarise", made_from, action, room, made)
