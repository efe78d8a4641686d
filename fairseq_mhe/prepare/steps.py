"""The steps that all text shares: learn subwords, segment the text, make it binary."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_mhe.common.system import installed
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.binarise import binarise
from fairseq_mhe.prepare.config import SubwordOptions
from fairseq_mhe.prepare.manifest import Counts, Manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report
from fairseq_mhe.prepare.subword import SubwordModel
from fairseq_mhe.prepare.text import read_lines, text_pieces

SEGMENT_BYTES = 1 << 20
# Bytes that a step writes for each byte that it reads, with some to spare: ids have two bytes where
# subwords have about five.
_ROOM = {"segment": 1.6, "binarise": 1.0}


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, fairseq, ours, and ``packages``, for the manifest's heading."""
    packages = ("fairseq-mhe", "ve-fairseq", "fairseq", *packages)
    return {"python": platform.python_version(), **installed(packages)}


def _subword_version(manifest: Manifest, kind: str) -> dict[str, str]:
    """The package that learns and applies subwords of a kind, and its version."""
    package = "sentencepiece" if kind == "sentencepiece" else "subword-nmt"
    return {package: manifest.content["versions"][package]}


def learn(
    manifest: Manifest, options: SubwordOptions, texts: Sequence[Path], lines: int, report: Report
) -> SubwordModel:
    """The subword model of clean training texts, which have ``lines`` in all: subword/."""
    kind = options.subword
    learnt = {
        "subword": kind,
        "vocab_size": options.vocab_size,
        "model_type": options.model_type if kind == "sentencepiece" else None,
    }
    names = [str(text.relative_to(manifest.folder)) for text in texts]
    checksums = manifest.checksums("clean")
    inputs = {name: checksums[name] for name in sorted(names)}
    made_from = {"inputs": inputs, "options": learnt, **_subword_version(manifest, kind)}

    def action(work: Path) -> Counts:
        path = work / "subword" / subword.MODEL_NAMES[kind]
        path.parent.mkdir()
        if kind == "sentencepiece":
            text = (line for path in texts for line in read_lines(path) if line)
            size, model_type = options.vocab_size, options.model_type
            subword.learn_sentencepiece(text, lines, size, model_type, path)
        else:
            words = subword.count_words(texts, options.cores)
            subword.learn_bpe_model(words, options.vocab_size, path)
        return {}

    report("learn", 0, lines)
    manifest.run("learn", made_from, action)
    report("learn", lines, lines)
    ((name, checksum),) = manifest.checksums("learn").items()
    return SubwordModel(kind, manifest.folder / name, checksum)


def segment(
    manifest: Manifest,
    texts: Sequence[Path],
    model: SubwordModel,
    workers: int,
    report: Report,
    most: int | None = None,
) -> None:
    """Clean texts in subwords, in lines of at most ``most`` subwords: subword/."""
    folder = f"{texts[0].parent.relative_to(manifest.folder)}/"
    made_from: dict[str, Any] = {
        "inputs": manifest.checksums("clean", folder),
        "model": model.checksum,
        **_subword_version(manifest, model.kind),
    }
    if most:
        made_from["most"] = most
    counts = manifest.content["steps"]["clean"]["counts"]
    total = sum(counts[text.stem]["kept"] for text in texts)

    def action(work: Path) -> Counts:
        done, result = 0, {}
        apply = partial(subword.segment_text, model=model, most=most)
        subword.segment([], model)  # reads the model, once for all processes
        (work / "subword").mkdir()
        for text in texts:
            tally = result[text.name] = {"lines": 0, "tokens": 0, "longest": 0}
            pieces = text_pieces(text, SEGMENT_BYTES)
            with (work / "subword" / text.name).open("wb") as stream:
                for part in ordered_map(apply, pieces, workers):
                    stream.write(part.text)
                    tally["lines"] += part.lines
                    tally["tokens"] += part.tokens
                    tally["longest"] = max(tally["longest"], part.longest)
                    done += part.read
                    report("segment", min(done, total - 1), total)
        return result

    room = _ROOM["segment"] * manifest.size("clean", folder)
    manifest.run("segment", made_from, action, room)
    report("segment", total, total)


def make_binary(
    manifest: Manifest,
    texts: Mapping[str, Path],
    dictionaries: Iterable[str],
    workers: int,
    report: Report,
) -> None:
    """fairseq's binary form of texts in subwords, by the names of the results: bin/."""
    versions = manifest.content["versions"]
    made_from = {
        "inputs": manifest.checksums("segment", "subword/"),
        "names": list(texts),  # which the direction of translation decides
        "fairseq": versions.get("ve-fairseq") or versions.get("fairseq"),
    }

    def action(work: Path) -> Counts:
        log = manifest.folder / "logs" / "binarise.log"
        return {"dictionary": binarise(texts, dictionaries, work / "bin", workers, log)}

    report("binarise", 0, len(texts))
    manifest.run("binarise", made_from, action, _ROOM["binarise"] * manifest.size("segment"))
    report("binarise", len(texts), len(texts))
