"""``fairseq-mhe prepare``: from parallel text to a data folder.

Read, normalise, tokenise, clean, learn, segment, binarise. `prepare` takes plain text;
`prepare_segmented` takes text in subwords, which enters after segment.
"""

import argparse
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import SPLITS, PrepareConfig, add_options, from_options
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, Facts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.steps import hashes_of, make_binary, make_subwords, text_facts
from fairseq_mhe.prepare.subword import MODEL_NAMES, join
from fairseq_mhe.prepare.text import (
    count_lines,
    read_lines,
    read_pairs,
    side_path,
    write_lines,
)
from fairseq_mhe.prepare.text_processing import model_text, normalise
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser, tokeniser

#: Of a split, the files of both sides, or the one file that has both.
Corpora = list[tuple[Path, ...]]
#: Source and target, and maybe the tokens of both.
Row = tuple[str, ...]
#: The kept rows, and how many pairs met which fate.
CleanText = tuple[list[Row], Counter[str]]

CHUNK = 5000  # lines that a process cleans at a time
#: Where lengths are counted in characters: a token is rarely longer.
_CHARACTERS_A_TOKEN = 8
_USUAL_FROM = 100_000  # first pairs of a corpus
_WARN_ABOVE = 10  # percent of the pairs that are dropped
#: The options that decide what cleaning writes, beside the tokeniser and --hold-out.
_CLEANING = ("max_tokens", "max_ratio", "punctuation", "lowercase")
#: Why a pair is dropped, in counts and in words.
_REASONS = {"empty": "empty", "too_long": "too long", "ratio": "of unlike lengths"}
_REFERENCES = 2000  # lines of the test set whose tokens are joined again and compared


def prepare(config: PrepareConfig, source: Facts | None = None) -> Path:
    """Make the data folder of ``config``, or what of it is missing, and return its path.

    ``source``: where the text comes from, for the manifest. Raises UserError where an option or an
    input is bad, or the folder cannot be written; the same call resumes.
    """
    config = config.checked()
    files = config.files()
    shown = {name: getattr(config, name) for name in ("vocab_size", *_CLEANING)}
    facts = text_facts(config.langs, config.subword, config.tokenizer, source, **shown)
    with open_manifest(config.out, PARALLEL, facts, config.workers) as manifest:
        counts = _clean(manifest, config, files)
        make_subwords(manifest, config, pair_texts(config.langs, config.model_folder))
        manifest.complete(lines={split: count["kept"] for split, count in counts.items()})
    for split, count in counts.items():
        dropped, fates = _summary(count)
        warning = f"warning: {dropped:.0f}% dropped: " if dropped > _WARN_ABOVE else ""
        say(f"{warning}{split}: {fates}")
    if config.tokenizer == "moses":
        _say_not_restored(config)
    return config.out


def pair_texts(langs: tuple[str, str], folder: str) -> dict[str, str]:
    """fairseq's name of each side of each split -> its text in a folder of the data folder."""
    pair = "-".join(langs)
    names = product(langs, SPLITS)
    return {f"{split}.{pair}.{lang}": f"{folder}/{split}.{lang}" for lang, split in names}


def _clean(
    manifest: Manifest, config: PrepareConfig, files: dict[str, Corpora]
) -> Counts:
    """The step from files to raw/ and tokenised/: read, normalise, tokenise, clean."""

    def action(work: Path) -> Counts:
        counts = {split: Counter(read=0, kept=0) for split in SPLITS}
        for folder in {"raw", config.model_folder}:
            (work / folder).mkdir()
        for split, corpora in files.items():
            number = 0  # of a clean pair
            for kept, fates in _cleaned(config, split, corpora):
                counts[split].update(fates, read=fates.total())
                rows_of = defaultdict(list)
                for row in kept:
                    number += 1
                    rows_of[config.split_of(number, split)].append(row)
                for name, rows in rows_of.items():
                    _append(work, config, name, rows)
                    if name != split:
                        counts[name].update(read=len(rows), kept=len(rows))
                        counts[split].update(held_out=len(rows), kept=-len(rows))
            _check_kept(corpora[0][0], counts[split], config.max_dropped)
        if not all(count["kept"] for count in counts.values()):
            few = f"too few pairs for --hold-out {config.hold_out}; take a smaller number"
            raise UserError(f"the training text has {few}")
        return {split: dict(counter) for split, counter in counts.items()}

    sides = {split: list(chain(*corpora)) for split, corpora in files.items()}
    names = ("tokenizer", *_CLEANING, "hold_out")
    options = {name: getattr(config, name) for name in names}
    made_from = {"inputs": hashes_of(sides, config.workers), "options": options}
    return manifest.run("clean", {**made_from, "langs": list(config.langs)}, action)


def _append(work: Path, config: PrepareConfig, split: str, rows: list[Row]) -> None:
    """Write clean pairs to the ends of a split's files."""
    # Two files if the model reads the plain text: the row's tokens are the same text again.
    folders = dict.fromkeys(("raw", config.model_folder))
    columns = zip(*rows, strict=True)
    for folder, lang in product(folders, config.langs):
        path = work / folder / f"{split}.{lang}"
        with path.open("a", encoding="utf-8") as stream:
            stream.write("\n".join(next(columns)) + "\n")


def _cleaned(config: PrepareConfig, split: str, corpora: Corpora) -> Iterator[CleanText]:
    """What `clean_pairs` returns of a split, chunk by chunk."""
    usual = 1.0
    if split == "train" and config.counts_characters and config.max_ratio is not None:
        usual = usual_ratio(chain.from_iterable(map(read_pairs, corpora)))
    clean_pairs([], config)  # makes the tokenisers, once for all processes
    clean = partial(clean_pairs, config=config, split=split, usual=usual)
    pairs = chain.from_iterable(map(read_pairs, corpora))
    chunks = iter(lambda: list(islice(pairs, CHUNK)), [])
    total = sum(count_lines(paths[0]) for paths in corpora) // CHUNK + 1
    return ordered_map(clean, chunks, config.workers, f"clean {split}", total)


def usual_ratio(pairs: Iterable[Row]) -> float:
    """How many characters the target usually has for one of the source's: the median."""
    sides = (map(normalise, pair) for pair in islice(pairs, _USUAL_FROM))
    ratios = [len(target) / len(source) for source, target in sides if source and target]
    return statistics.median(ratios or [1.0])


def clean_pairs(
    pairs: Sequence[Row], config: PrepareConfig, split: str = "train", usual: float = 1.0
) -> CleanText:
    """Normalise, tokenise and filter pairs of a split; ``usual``: its `usual_ratio`."""
    raw = [[normalise(pair[side]) for pair in pairs] for side in (0, 1)]
    how = config.tokenizer, config.punctuation, config.lowercase
    tokens = []
    for lang, lines in zip(config.langs, raw, strict=True):
        process = model_text(lang, *how)
        tokens.append(process(lines))
    max_ratio = config.max_ratio if split == "train" else None
    rows = list(zip(*raw, *tokens, strict=True))
    fates = [_fate(row, config, max_ratio or math.inf, usual) for row in rows]
    kept = [row for row, fate in zip(rows, fates, strict=True) if fate == "kept"]
    if config.lowercase:
        kept = [tuple(map(str.lower, row)) for row in kept]
    return kept, Counter(fates)


def _fate(row: Row, config: PrepareConfig, max_ratio: float, usual: float) -> str:
    """One of `_REASONS`, or kept."""
    if not all(row):
        return "empty"
    source, target, *tokens = row
    if config.counts_characters:
        lengths: list[float] = [len(source), len(target) / usual]
        longest = max(len(source), len(target)) / _CHARACTERS_A_TOKEN
        spare = _CHARACTERS_A_TOKEN  # a word more or less makes no pair a wrong one
    else:
        lengths = [side.count(" ") + 1 for side in tokens]
        longest, spare = max(lengths), 0
    if longest > config.max_tokens:
        return "too_long"
    return "ratio" if max(lengths) > max_ratio * min(lengths) + spare else "kept"


def _check_kept(text: Path, counts: Mapping[str, int], most: float) -> None:
    """Raise UserError where a split has no pairs, or cleaning drops over ``most`` percent."""
    dropped, fates = _summary(counts)
    if not counts["kept"]:
        raise UserError(f"cleaning leaves no pair of {text} ({fates})")
    if dropped > most:
        advice = "relax --max-ratio or --max-tokens, or accept it with --max-dropped 100"
        problem = f"cleaning drops {dropped:.0f}% of {text} ({fates})"
        raise UserError(f"{problem}: check the text, {advice}")


def _summary(counts: Mapping[str, int]) -> tuple[float, str]:
    """The percentage of dropped pairs; how many were kept, held out, and dropped for what."""
    parts = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    names = {"held_out": "held out", **_REASONS}
    parts += [
        f"{counts[name]:,} {fate}" for name, fate in names.items() if counts.get(name)
    ]
    dropped = sum(counts.get(name, 0) for name in _REASONS)
    return 100 * dropped / max(1, counts["read"]), ", ".join(parts)


def _say_not_restored(config: PrepareConfig) -> None:
    """Say which forms in the references Moses' rules do not restore, how often, with examples."""
    lang = config.target_lang
    split, restore = tokeniser("moses", lang), detokeniser("moses", lang)
    lines = list(islice(read_lines(config.out / "raw" / f"test.{lang}"), _REFERENCES))
    forms: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for line in lines:
        restored = restore(split(line))
        if restored != line:
            kept = set(restored.split())
            lost = [word for word in line.split() if word not in kept]
            words = " ".join(lost or [line])
            form = re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "A", words))
            forms[form] += 1
            examples.setdefault(form, words)
    if forms:
        like = [
            f"{n} like {form} ({examples[form]!r})" for form, n in forms.most_common(4)
        ]
        share = f"{forms.total():,} of {len(lines):,} references"
        problem = "which no translation can match fully"
        say(f"test: Moses' rules do not restore {share}, {problem}: {'; '.join(like)}")


def prepare_segmented(
    texts: Mapping[str, Path],
    langs: tuple[str, str],
    out: Path,
    codes: Path | None = None,
    source: Facts | None = None,
) -> Path:
    """Make a data folder of lower-case text that others split into Moses' tokens and by BPE.

    Nothing is dropped or changed; the plain text beside it comes from undoing subwords, escapes
    (``&apos;``) and tokens. ``texts``: split -> prefix of two files, PREFIX.LANG; ``codes``: the
    merges of the text, for new text; ``source`` and errors as in `prepare`.
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
                finish = detokeniser(ESCAPED, lang)
                plain = [finish(join(line, "bpe")) for line in column]
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
