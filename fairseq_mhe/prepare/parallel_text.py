"""``fairseq-mhe prepare``: from parallel text to a data folder.

A pair's journey: it is read, normalised, tokenised, and kept or dropped (`cleaning.clean_pairs`),
held out or not, and written to raw/ and tokenised/ (`_clean`). Then the steps of every text follow
(`steps.make_subwords`): learn subwords, segment, binarise.
"""

import argparse
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path

from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board, say
from fairseq_mhe.prepare.cleaning import (
    CleanText,
    Row,
    check_kept,
    clean_pairs,
    median_ratio,
    summary,
)
from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, Facts, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.steps import hashes_of, make_subwords, pair_texts
from fairseq_mhe.prepare.text import doubts_of_table, read_pairs

#: The texts of a split: for each the files of its two sides, or one table.
Corpora = list[tuple[Path, ...]]
#: Appends rows to the files of a split.
Write = Callable[[str, list[Row]], None]

CHUNK = 5000  # pairs that a worker process cleans at a time
_LOOKED_AT = 10_000  # the first lines of a table
_RATIO_PAIRS = 100_000  # the first pairs of a corpus, which give the usual length ratio
_WARN_ABOVE = 10  # percent of dropped pairs


def prepare(config: PrepareConfig, source: Facts | None = None) -> Path:
    """Make the data folder of ``config`` and return its path; finished steps are skipped.

    ``source``: what the manifest records about the origin of the text. Raises UserError if an
    option or a text is unusable, or the folder cannot be written; the same call then resumes.
    """
    config = config.checked()
    files = config.files()
    options = {
        "vocab_size": config.vocab_size,
        "max_tokens": config.max_tokens,
        "max_ratio": config.max_ratio,
    }
    facts = {
        "text_spec": config.processing.stored,
        "options": options,
        "source": source or {},
    }
    with open_manifest(config.out, PARALLEL, facts, config.workers) as manifest:
        action = partial(_clean, config, files)
        counts = manifest.run("clean", _made_from(config, files), action)
        make_subwords(manifest, config, pair_texts(config.langs, config.model_folder))
        lines = {split: count["kept"] for split, count in counts.items()}
        manifest.complete(lines=lines)
    for split, count in counts.items():
        _say_counts(split, count)
    return config.out


def _made_from(config: PrepareConfig, files: dict[str, Corpora]) -> Facts:
    """Return all that determines what `_clean` writes."""
    sides = {split: list(chain(*corpora)) for split, corpora in files.items()}
    options = {
        "tokenizer": config.tokenizer,
        "punctuation": config.punctuation,
        "lowercase": config.lowercase,
        "max_tokens": config.max_tokens,
        "max_ratio": config.max_ratio,
        "hold_out": config.hold_out,
        "filtered": ["train"],  # version 0.3 also filtered valid and test
    }
    inputs = hashes_of(sides, config.workers)
    return {"inputs": inputs, "options": options, "langs": list(config.langs)}


def _clean(config: PrepareConfig, files: dict[str, Corpora], work: Path) -> Counts:
    """Read, normalise, tokenise and filter all pairs into raw/ and tokenised/; count outcomes."""
    counts = {split: Counter(read=0, kept=0) for split in SPLITS}
    hashes = {split: array("q") for split in SPLITS}  # of kept pairs, 8 bytes each
    with _opened_files(work, config) as write:
        for split, corpora in files.items():
            number = 0  # counts the kept pairs, for --hold-out
            for kept, outcomes in _cleaned(config, split, corpora):
                counts[split].update(outcomes, read=outcomes.total())
                if split != "train":
                    counts[split]["empty_side"] += sum(not all(row) for row in kept)
                rows_by_split = defaultdict(list)
                for row in kept:
                    number += 1
                    rows_by_split[config.split_of(number, split)].append(row)
                for name, rows in rows_by_split.items():
                    write(name, rows)
                    hashes[name].extend(hash(row[:2]) for row in rows)
                    if name != split:  # these pairs are held out
                        counts[name].update(read=len(rows), kept=len(rows))
                        counts[split].update(held_out=len(rows), kept=-len(rows))
            check_kept(split, counts[split], config.max_dropped)
    if not all(count["kept"] for count in counts.values()):
        raise UserError(
            f"--hold-out {config.hold_out} needs {config.hold_out} clean pairs or more"
        )
    for split in ("valid", "test"):
        shared = set(hashes[split]).intersection(hashes["train"])
        counts[split]["in_train"] = sum(map(shared.__contains__, hashes[split]))
    return {split: dict(counter) for split, counter in counts.items()}


@contextmanager
def _opened_files(work: Path, config: PrepareConfig) -> Iterator[Write]:
    """Open the files of all splits, and give the block the function that writes to them."""
    # Columns 0 and 1 are for people (raw/), 2 and 3 for the model, which may read raw/, too.
    model = config.model_folder
    columns = {("raw", 0): 0, ("raw", 1): 1, (model, 0): 2, (model, 1): 3}
    with ExitStack() as stack:
        streams = {}
        for folder, side in columns:
            (work / folder).mkdir(exist_ok=True)
            for split in SPLITS:
                path = work / folder / f"{split}.{config.langs[side]}"
                stream = stack.enter_context(path.open("w", encoding="utf-8"))
                streams[split, folder, side] = stream

        def write(split: str, rows: list[Row]) -> None:
            for (folder, side), column in columns.items():
                lines = [f"{row[column]}\n" for row in rows]
                streams[split, folder, side].writelines(lines)

        yield write


def _cleaned(config: PrepareConfig, split: str, corpora: Corpora) -> Iterator[CleanText]:
    """Yield what `clean_pairs` returns for each chunk of a split."""
    with Board("MB") as board:
        pairs = _pairs(corpora, config.langs, board)
        ratio = 1.0
        if split == "train" and config.counts_characters:
            first = list(islice(pairs, _RATIO_PAIRS))
            ratio = median_ratio(first)
            pairs = chain(first, pairs)
        clean_pairs([], config)  # caches the tokenisers, which forked workers inherit
        clean = partial(clean_pairs, config=config, split=split, ratio=ratio)
        chunks = iter(lambda: list(islice(pairs, CHUNK)), [])  # until no pair is left
        yield from ordered_map(clean, chunks, config.workers)


def _pairs(corpora: Corpora, langs: tuple[str, str], board: Board) -> Iterator[Row]:
    """Yield the pairs of all texts, each of which is read once; warn of what is odd in tables."""
    for paths in corpora:
        pairs: Iterator[Row] = read_pairs(paths, board)
        if len(paths) == 1:
            first = list(islice(pairs, _LOOKED_AT))
            if doubt := doubts_of_table(first, langs):
                say(f"warning: {paths[0]}: {doubt}")
            pairs = chain(first, pairs)
        yield from pairs


def _say_counts(split: str, count: Counts) -> None:
    """Print how many pairs of a split are kept, and what is odd about them."""
    dropped, outcomes = summary(count)
    warning = f"warning: {dropped:.0f}% dropped: " if dropped > _WARN_ABOVE else ""
    say(f"{warning}{split}: {outcomes}")
    if empty := count.get("empty_side"):
        share = f"{empty:,} of {count['kept']:,} pairs of {split}"
        say(f"warning: {share} have an empty side: they are scored, too")
    if in_train := count.get("in_train"):
        share = f"{in_train:,} of {count['kept']:,} pairs of {split}"
        say(f"warning: {share} are also in train: its scores may look too good")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, PrepareConfig)


def run(args: argparse.Namespace) -> None:
    print(prepare(from_options(PrepareConfig, args)))
