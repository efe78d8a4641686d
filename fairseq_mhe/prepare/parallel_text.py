"""``fairseq-mhe prepare``: from parallel text to a data folder.

Its steps: clean (read, normalise, tokenise, filter), learn, segment, binarise. `prepare` takes
plain text; `prepare_segmented` takes text that is already in subwords.
"""

import argparse
import math
import statistics
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from pathlib import Path

from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import SPLITS, PrepareConfig
from fairseq_mhe.prepare.languages import characters_per_token
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, Facts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.steps import hashes_of, make_binary, make_subwords, text_facts
from fairseq_mhe.prepare.subword import MODEL_NAMES, join
from fairseq_mhe.prepare.text import (
    count_lines,
    doubts_of_table,
    read_lines,
    read_pairs,
    side_path,
    write_lines,
)
from fairseq_mhe.prepare.text_processing import model_text, normalise
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser

#: The texts of a split: for each the files of its two sides, or one table.
Corpora = list[tuple[Path, ...]]
#: (source, target), or (source, target, source for the model, target for the model).
Row = tuple[str, ...]
#: The kept rows, and the number of pairs by outcome: "kept", or a key of `_REASONS`.
CleanText = tuple[list[Row], Counter[str]]

CHUNK = 5000  # pairs that a worker process cleans at a time
_TOLERANCE = 8  # characters by which the sides of a good pair may differ: a word
_RATIO_PAIRS = 100_000  # the first pairs of a corpus, which give the usual length ratio
_WARN_ABOVE = 10  # percent of dropped pairs
#: With the tokeniser and --hold-out, these options determine what cleaning writes.
_CLEANING = ("max_tokens", "max_ratio", "punctuation", "lowercase")
#: Why a pair of train is dropped: the key of its count -> the words of messages.
_REASONS = {
    "empty": "empty",
    "too_long": "too long (--max-tokens)",
    "ratio": "of unlike lengths (--max-ratio)",
}
_LONGEST_WORD = 1000  # characters; its subwords could exceed fairseq's 1,024 positions


def prepare(config: PrepareConfig, source: Facts | None = None) -> Path:
    """Make the data folder of ``config`` and return its path; finished steps are skipped.

    ``source``: what the manifest records about the origin of the text. Raises UserError if an
    option or a text is unusable, or the folder cannot be written; the same call then resumes.
    """
    config = config.checked()
    files = config.files()
    options = {name: getattr(config, name) for name in ("vocab_size", *_CLEANING)}
    facts = text_facts(config.langs, config.subword, config.tokenizer, source, **options)
    with open_manifest(config.out, PARALLEL, facts, config.workers) as manifest:
        counts = _clean(manifest, config, files)
        make_subwords(manifest, config, pair_texts(config.langs, config.model_folder))
        lines = {split: count["kept"] for split, count in counts.items()}
        manifest.complete(lines=lines)
    for split, count in counts.items():
        dropped, outcomes = _summary(count)
        warning = f"warning: {dropped:.0f}% dropped: " if dropped > _WARN_ABOVE else ""
        say(f"{warning}{split}: {outcomes}")
        if empty := count.get("empty_side"):
            share = f"{empty:,} of {count['kept']:,} pairs of {split}"
            say(f"warning: {share} have an empty side: they are scored, too")
        if in_train := count.get("in_train"):
            share = f"{in_train:,} of {count['kept']:,} pairs of {split}"
            say(f"warning: {share} are also in train: its scores may look too good")
    return config.out


def pair_texts(langs: tuple[str, str], folder: str) -> dict[str, str]:
    """Return fairseq's name of each text (train.en-de.en) -> its file (FOLDER/train.en)."""
    pair = "-".join(langs)
    names = product(langs, SPLITS)
    return {f"{split}.{pair}.{lang}": f"{folder}/{split}.{lang}" for lang, split in names}


def _clean(
    manifest: Manifest, config: PrepareConfig, files: dict[str, Corpora]
) -> Counts:
    """Run the step "clean": read, normalise, tokenise and filter, into raw/ and tokenised/."""

    def action(work: Path) -> Counts:
        counts = {split: Counter(read=0, kept=0) for split in SPLITS}
        hashes = {split: array("q") for split in SPLITS}  # of kept pairs, 8 bytes each
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
                    _append(work, config, name, rows)
                    hashes[name].extend(hash(row[:2]) for row in rows)
                    if name != split:  # these pairs are held out
                        counts[name].update(read=len(rows), kept=len(rows))
                        counts[split].update(held_out=len(rows), kept=-len(rows))
            _check_kept(split, counts[split], config.max_dropped)
        if not all(count["kept"] for count in counts.values()):
            raise UserError(
                f"--hold-out {config.hold_out} needs {config.hold_out} clean pairs or more"
            )
        for split in ("valid", "test"):
            shared = set(hashes[split]).intersection(hashes["train"])
            counts[split]["in_train"] = sum(map(shared.__contains__, hashes[split]))
        return {split: dict(counter) for split, counter in counts.items()}

    sides = {split: list(chain(*corpora)) for split, corpora in files.items()}
    names = ("tokenizer", *_CLEANING, "hold_out")
    options = {name: getattr(config, name) for name in names}
    options["filtered"] = ["train"]  # version 0.3 also filtered valid and test
    made_from = {"inputs": hashes_of(sides, config.workers), "options": options}
    return manifest.run("clean", {**made_from, "langs": list(config.langs)}, action)


def _append(work: Path, config: PrepareConfig, split: str, rows: list[Row]) -> None:
    """Append clean pairs to the files of a split."""
    for side, lang in enumerate(config.langs):
        # If the model reads raw/, both columns hold the same text.
        columns = {"raw": side, config.model_folder: side + 2}
        for folder, column in columns.items():
            path = work / folder / f"{split}.{lang}"
            path.parent.mkdir(exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                stream.writelines(f"{row[column]}\n" for row in rows)


def _cleaned(config: PrepareConfig, split: str, corpora: Corpora) -> Iterator[CleanText]:
    """Yield what `clean_pairs` returns for each chunk of a split."""
    for paths in corpora:
        if len(paths) == 1 and (doubt := doubts_of_table(paths[0], config.langs)):
            say(f"warning: {paths[0]}: {doubt}")
    ratio = 1.0
    if split == "train" and config.counts_characters:
        ratio = median_ratio(chain.from_iterable(map(read_pairs, corpora)))
    clean_pairs([], config)  # caches the tokenisers, which forked workers inherit
    clean = partial(clean_pairs, config=config, split=split, ratio=ratio)
    pairs = chain.from_iterable(map(read_pairs, corpora))
    chunks = iter(lambda: list(islice(pairs, CHUNK)), [])  # until no pair is left
    total = sum(count_lines(paths[0]) for paths in corpora) // CHUNK + 1
    return ordered_map(clean, chunks, config.workers, f"clean {split}", total)


def median_ratio(pairs: Iterable[Row]) -> float:
    """Return the median number of target characters per source character."""
    sides = (map(normalise, pair) for pair in islice(pairs, _RATIO_PAIRS))
    ratios = [len(target) / len(source) for source, target in sides if source and target]
    return statistics.median(ratios or [1.0])


def clean_pairs(
    pairs: Sequence[Row], config: PrepareConfig, split: str = "train", ratio: float = 1.0
) -> CleanText:
    """Normalise and tokenise pairs of a split, and filter those of train.

    Valid and test keep every pair: BLEU is of the official number of sentences. ``ratio``:
    `median_ratio` of the corpus.
    """
    raw = [[normalise(pair[side]) for pair in pairs] for side in (0, 1)]
    settings = config.tokenizer, config.punctuation, config.lowercase
    tokens = []
    for lang, lines in zip(config.langs, raw, strict=True):
        process = model_text(lang, *settings)
        tokens.append(process(lines))
    kept: list[Row] = []
    outcomes: Counter[str] = Counter()
    for row in zip(*raw, *tokens, strict=True):
        outcome = _outcome(row, config, ratio) if split == "train" else "kept"
        outcomes[outcome] += 1
        if outcome == "kept":
            kept.append(tuple(map(str.lower, row)) if config.lowercase else row)
    return kept, outcomes


def _outcome(row: Row, config: PrepareConfig, ratio: float) -> str:
    """Return "kept", or the key of `_REASONS` that says why the pair is dropped."""
    if not all(row):
        return "empty"
    source, target, *tokens = row
    if config.counts_characters:
        lengths: list[float] = [len(source), len(target) / ratio]
        sizes = zip(row, map(characters_per_token, config.langs), strict=False)
        longest = max(len(side) / size for side, size in sizes)
        tolerance = _TOLERANCE
    else:
        lengths = [side.count(" ") + 1 for side in tokens]
        longest, tolerance = max(lengths), 0
    if longest > config.max_tokens or _has_endless_word(row, config):
        return "too_long"
    max_ratio = config.max_ratio or math.inf
    return "ratio" if max(lengths) > max_ratio * min(lengths) + tolerance else "kept"


def _has_endless_word(row: Row, config: PrepareConfig) -> bool:
    """Whether a word (a data URL, for instance) is longer than fairseq's positions may hold."""
    if not config.have_spaces or max(map(len, row)) <= _LONGEST_WORD:
        return False
    return any(len(word) > _LONGEST_WORD for side in row for word in side.split())


def _check_kept(split: str, counts: Counter[str], max_dropped: float) -> None:
    """Raise UserError if no kept pair has text, or cleaning drops over ``max_dropped`` percent."""
    dropped, outcomes = _summary(counts)
    if counts["kept"] == counts["empty_side"]:
        raise UserError(f"cleaning keeps no pair of {split} ({outcomes}): check the text")
    if dropped > max_dropped:
        advice = "relax --max-ratio or --max-tokens, or accept it with --max-dropped 100"
        problem = f"cleaning drops {dropped:.0f}% of {split} ({outcomes})"
        raise UserError(f"{problem}: check the text, {advice}")


def _summary(counts: Mapping[str, int]) -> tuple[float, str]:
    """Return the percentage of dropped pairs, and the number of pairs by outcome as text."""
    parts = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    words = {"held_out": "held out", **_REASONS}
    parts += [
        f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name)
    ]
    dropped = sum(counts.get(name, 0) for name in _REASONS)
    return 100 * dropped / max(1, counts["read"]), ", ".join(parts)


def prepare_segmented(
    texts: Mapping[str, Path],
    langs: tuple[str, str],
    out: Path,
    codes: Path | None = None,
    source: Facts | None = None,
) -> Path:
    """Make a data folder from lower-case text in Moses' tokens and BPE subwords.

    Every line stays as it is; undoing subwords, escapes (``&apos;``) and tokens gives raw/.
    ``texts``: split -> PREFIX of two files PREFIX.LANG; ``codes``: file of the BPE merges, to
    segment new text; ``source`` and errors as in `prepare`.
    """
    sides = {
        split: tuple(side_path(prefix, lang) for lang in langs)
        for split, prefix in texts.items()
    }

    def action(work: Path) -> Counts:
        for folder in ("subword", "raw"):
            (work / folder).mkdir()
        if codes:
            write_lines(work / "subword" / MODEL_NAMES["bpe"], read_lines(codes))
        lines = {}
        for split, pair in sides.items():
            columns = zip(*read_pairs(pair), strict=True)
            for lang, column in zip(langs, columns, strict=True):
                lines[split] = len(column)
                write_lines(work / "subword" / f"{split}.{lang}", column)
                detokenise = detokeniser(ESCAPED, lang)
                plain = [detokenise(join(line, "bpe")) for line in column]
                write_lines(work / "raw" / f"{split}.{lang}", plain)
        return lines

    paths = list(chain(*sides.values()))
    if codes:
        paths.append(codes)
    facts = text_facts(langs, "bpe", ESCAPED, source, lowercase=True)
    with open_manifest(out, PARALLEL, facts, cores()) as manifest:
        lines = manifest.run("segment", hashes_of({"inputs": paths}, cores()), action)
        make_binary(manifest, pair_texts(langs, "subword"))
        manifest.complete(lines=lines)
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, PrepareConfig)


def run(args: argparse.Namespace) -> None:
    print(prepare(from_options(PrepareConfig, args)))
