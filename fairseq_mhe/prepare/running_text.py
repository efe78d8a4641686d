"""Prepare running text (documents with one paragraph a line) for language models."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from fairseq_mhe.common.arguments import integer, option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.config import SPLITS, TextOptions, vocabulary
from fairseq_mhe.prepare.manifest import TEXT, Counts, Facts, open_manifest
from fairseq_mhe.prepare.steps import hashes_of, make_subwords
from fairseq_mhe.prepare.text import existing_text, read_lines
from fairseq_mhe.prepare.text_processing import TextProcessing, normalise

#: Where documents begin: after an empty line, at a heading like ``= Title =``, or with a file.
EMPTY_LINES, TITLES, FILES = "empty lines", "titles", "files"
#: The heading of an article; headings of sections have two or more ``=`` on each side.
_TITLE = re.compile(r" ?= [^=].* = ?")


@dataclass(frozen=True, kw_only=True)
class TextConfig(TextOptions):
    """The options for running text: UTF-8, one paragraph a line; --hold-out takes documents."""

    vocab_size: int = vocabulary(8000)
    # In training fairseq skips longer paragraphs; in validation they are an error.
    block: int = integer(
        512, "split longer paragraphs; N is --tokens-per-sample of the training", 8
    )
    lang: str = option("en", "language code", metavar="LANG")
    documents: str = EMPTY_LINES


def prepare_text(config: TextConfig, source: Facts | None = None) -> Path:
    """Make the data folder of ``config`` and return its path, as `parallel_text.prepare` does."""
    config.check_splits()
    files = config.texts()
    for path in chain(*files.values()):
        config.check_outside(existing_text(path))
    config = replace(config, subword=config.subword or "sentencepiece")
    langs = (config.lang, config.lang)
    text = TextProcessing(*langs, "none", config.subword, lowercase=config.lowercase)
    facts = {"text_spec": text.stored, "source": source or {}}
    options = [config.hold_out, config.lowercase, config.documents]
    made_from = {"inputs": hashes_of(files, config.workers), "options": options}
    with open_manifest(config.out, TEXT, facts, config.workers) as manifest:
        counts = manifest.run("clean", made_from, partial(_clean, config))
        texts = {split: f"raw/{split}.txt" for split in SPLITS}
        # fairseq's begin and end symbols also count towards a block.
        make_subwords(manifest, config, texts, max_length=config.block - 2)
        manifest.complete(lines={split: count["kept"] for split, count in counts.items()})
    for split, count in counts.items():
        say(f"{split}: {count['documents']:,} documents, {count['kept']:,} paragraphs")
    return config.out


def documents(paths: Sequence[Path], boundary: str) -> Iterator[list[str]]:
    """Yield the documents of files, split at ``boundary``: non-empty lists of normalised lines."""
    for path in paths:
        document: list[str] = []
        for line in read_lines(path):
            text = normalise(line)
            title = boundary == TITLES and _TITLE.fullmatch(line)
            if document and (title or (boundary == EMPTY_LINES and not text)):
                yield document
                document = []
            if text:
                document.append(text)
        if document:
            yield document


def _clean(config: TextConfig, work: Path) -> Counts:
    """Write normalised documents, with empty lines between them, into raw/; count them by split."""
    counts = {split: {"kept": 0, "documents": 0} for split in SPLITS}
    (work / "raw").mkdir()
    with ExitStack() as stack:
        streams = {}
        for split in SPLITS:
            stream = (work / "raw" / f"{split}.txt").open("w", encoding="utf-8")
            streams[split] = stack.enter_context(stream)
        for given_split, paths in config.texts().items():
            for number, document in enumerate(documents(paths, config.documents)):
                split = config.split_of(number, given_split)
                separator = "\n" if counts[split]["documents"] else ""
                text = separator + "".join(f"{line}\n" for line in document)
                streams[split].write(text.lower() if config.lowercase else text)
                counts[split]["documents"] += 1
                counts[split]["kept"] += len(document)
    for split, count in counts.items():
        if not count["documents"]:
            texts = config.texts().get(split, config.train)
            names = ", ".join(map(str, texts))
            problem = f"too few documents, {split} would be empty"
            advice = "put an empty line between documents"
            raise UserError(f"{names}: {problem}; {advice}")
    return counts
