"""The steps of every text: learn subwords, segment, binarise (faster than fairseq-preprocess)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, product, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import fairseq_mhe
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256_of_all, write_text
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.config import SPLITS, TextOptions
from fairseq_mhe.prepare.manifest import Counts, Manifest
from fairseq_mhe.prepare.parallel import map_blocks
from fairseq_mhe.prepare.subword import MODEL_NAMES, SubwordModel
from fairseq_mhe.prepare.text import lines_of
from fairseq_mhe.prepare.zipped import archive_of

if TYPE_CHECKING:  # fairseq takes seconds to import
    from fairseq.data import Dictionary

# Bytes of text that a worker process segments or binarises at a time.
SEGMENT_BYTES, BINARY_BYTES = 1 << 20, 1 << 21
POSITIONS = 1024  # fairseq's default of --max-source-positions and --max-target-positions
LONGEST_LINE = 10_000  # tokens; attention over more of them takes gigabytes


def hashes_of(files: Mapping[str, Sequence[Path]], workers: int) -> dict[str, list[str]]:
    """Return name -> the SHA-256 of its files, as the ``made_from`` of `Manifest.run`.

    For a file in a zip archive that is the archive's, and the file's name in it.
    """
    archives = {path: archive_of(path) for path in chain(*files.values())}
    on_disk = {archive or path for path, archive in archives.items()}  # an archive once
    hashes = sha256_of_all(list(on_disk), workers)

    def checksum(path: Path) -> str:
        archive = archives[path]
        if archive is None:
            return hashes[path]
        return f"{hashes[archive]}/{path.relative_to(archive)}"

    return {name: list(map(checksum, paths)) for name, paths in files.items()}


def pair_texts(langs: tuple[str, str], folder: str) -> dict[str, str]:
    """Return fairseq's name of each text (train.en-de.en) -> its file (FOLDER/train.en)."""
    pair = "-".join(langs)
    names = product(langs, SPLITS)
    return {f"{split}.{pair}.{lang}": f"{folder}/{split}.{lang}" for lang, split in names}


def make_subwords(
    manifest: Manifest, config: TextOptions, texts: Mapping[str, str], max_length: int = 0
) -> None:
    """Learn a subword model on the clean train texts, segment all texts, and binarise them.

    ``texts``: fairseq's name of each text (train.en-de.en) -> its clean file in the data folder
    (raw/train.en); lines of over ``max_length`` subwords are split, unless that is 0.
    """
    model = _learn(manifest, config, _train_texts(texts.values()))
    _segment(manifest, model, list(texts.values()), max_length)
    segmented = {name: f"subword/{Path(text).name}" for name, text in texts.items()}
    make_binary(manifest, segmented)


def _train_texts(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if Path(text).stem == "train"]


def _learn(manifest: Manifest, config: TextOptions, train: list[str]) -> SubwordModel:
    """Run the step "learn": from clean train texts to a subword model in subword/."""
    kind, size = config.subword, config.vocab_size
    name = f"subword/{MODEL_NAMES[kind]}"
    paths = [manifest.folder / text for text in train]

    def action(work: Path) -> None:
        (work / "subword").mkdir()
        if kind == "sentencepiece":
            subword.learn_sentencepiece(paths, size, work / name)
        else:
            words = subword.count_words(paths, manifest.workers)
            subword.learn_bpe_model(words, size, work / name)

    made_from = {"inputs": manifest.checksums(train), "options": [kind, size]}
    manifest.run("learn", made_from, action)
    return SubwordModel(kind, manifest.folder / name)


def _segment(
    manifest: Manifest, model: SubwordModel, texts: list[str], max_length: int
) -> None:
    """Run the step "segment": from clean texts to the same texts in subwords, in subword/."""

    def action(work: Path) -> None:
        segment = partial(subword.segment_text, model=model, max_length=max_length)
        subword.segment([], model)  # caches the model, which forked workers inherit
        (work / "subword").mkdir()
        for text in texts:
            path = manifest.folder / text
            blocks = map_blocks(segment, path, SEGMENT_BYTES, manifest.workers, "segment")
            with (work / "subword" / path.name).open("wb") as stream:
                stream.writelines(blocks)

    (checksum,) = manifest.checksums([f"subword/{model.path.name}"]).values()
    made_from = {"inputs": manifest.checksums(texts), "model": checksum}
    manifest.run("segment", {**made_from, "max_length": max_length}, action)


def make_binary(manifest: Manifest, texts: Mapping[str, str]) -> None:
    """Run the step "binarise": from ``texts`` (fairseq's name -> file in subwords) to bin/."""

    def action(work: Path) -> Counts:
        train = [manifest.folder / text for text in _train_texts(texts.values())]
        dictionary = _dictionary_of(train, manifest.workers)
        # The suffix of train.en-de.de is .de; the name train of running text has none.
        for suffix in {Path(name).suffix for name in texts}:
            dictionary.save(str(work / "bin" / f"dict{suffix}.txt"))
        log = f"{len(dictionary)} types\n"
        longest_lines = []
        for name, text in texts.items():
            prefix, path = work / "bin" / name, manifest.folder / text
            lengths, unknown = binarise(dictionary, path, prefix, manifest.workers)
            counts = f"{len(lengths)} lines, {sum(lengths)} tokens, {unknown} unknown"
            log += f"{path.name}: {counts}\n"
            if path.stem != "train":  # valid and test keep every line
                longest_lines.append(_longest_line(path, lengths))
        write_text(manifest.folder / "logs" / "binarise.log", log)
        length, line = max(longest_lines)
        if length > POSITIONS:
            options = "--max-source-positions and --max-target-positions"
            say(
                f"warning: {line}: fairseq-train needs {options} {length}; "
                "fairseq-mhe's commands raise them"
            )
        return {"dictionary": len(dictionary) - dictionary.nspecial}

    # The names depend on the direction of translation: the other one repeats this step.
    made_from = {"inputs": manifest.checksums(texts.values()), "names": list(texts)}
    manifest.run("binarise", made_from, action)


def _dictionary_of(texts: Sequence[Path], workers: int) -> Dictionary:
    """Return fairseq's dictionary of the words of texts."""
    fairseq_mhe.register()
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for word, count in subword.count_words(texts, workers).items():
        dictionary.add_symbol(word, count)
    dictionary.finalize()
    return dictionary


def _longest_line(text: Path, lengths: Sequence[int]) -> tuple[int, str]:
    """Return the tokens of a text's longest line, and what to say of it; UserError above a limit.

    ``lengths``: tokens of each line, </s> included.
    """
    longest = max(lengths)
    line = f"{text.name}, line {lengths.index(longest) + 1} has {longest:,} subwords"
    if longest > LONGEST_LINE:
        limit = f"over {LONGEST_LINE:,}, which is too much for attention"
        raise UserError(f"{line}, {limit}: shorten or remove the line, on both sides")
    return longest, line


def binarise(
    dictionary: Dictionary, text: Path, prefix: Path, workers: int = 1
) -> tuple[list[int], int]:
    """Write token ids to PREFIX.bin and lengths of lines to PREFIX.idx.

    Returns the number of tokens of each line, </s> included, and the number of unknown tokens.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset, best_fitting_int_dtype

    dtype = best_fitting_int_dtype(len(dictionary))
    special = {"unk": dictionary.unk(), "eos": dictionary.eos()}
    encode = partial(_token_ids, known=dictionary.indices, dtype=dtype, **special)
    blocks = map_blocks(encode, text, BINARY_BYTES, workers, "binarise")
    lengths: list[int] = []
    unk = 0
    with Path(f"{prefix}.bin").open("wb") as data:
        for ids, line_lengths in blocks:
            data.write(ids.tobytes())
            lengths += line_lengths
            unk += int(np.count_nonzero(ids == dictionary.unk()))
    with MMapIndexedDataset.Index.writer(f"{prefix}.idx", dtype) as index:
        index.write(lengths)
    return lengths, unk


def _token_ids(
    block: bytes, known: Mapping[str, int], unk: int, eos: int, dtype: Any
) -> tuple[NDArray[Any], list[int]]:
    """Return the token ids of a block's lines, joined, (N,), and the number of ids of each line."""
    ids: list[int] = []
    lengths: list[int] = []
    for line in lines_of(block):
        subwords = line.split()
        ids.extend(map(known.get, subwords, repeat(unk)))
        ids.append(eos)
        lengths.append(len(subwords) + 1)
    return np.array(ids, dtype=dtype), lengths
