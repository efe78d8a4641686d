"""``fairseq-mhe prepare``: from parallel text to a data folder.

Read, normalise, tokenise, clean, learn, segment, binarise. `prepare` takes plain text;
`prepare_segmented` takes text in subwords, which enters after segment.
"""

import argparse
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256_of_all
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import (
    SPLITS,
    Inputs,
    PrepareConfig,
    add_options,
    checked,
    from_options,
    input_files,
)
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.steps import make_binary, make_subwords, text_facts
from fairseq_mhe.prepare.subword import MODEL_NAMES
from fairseq_mhe.prepare.text import (
    count_lines,
    read_lines,
    read_pairs,
    side_path,
    write_lines,
)
from fairseq_mhe.prepare.text_processing import model_text, normalise, plain_text
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser, tokeniser

Pair = tuple[str, str]
#: (Folder, language) -> UTF-8 text of the kept pairs; and how many pairs met which fate.
CleanText = tuple[dict[tuple[str, str], bytes], Counter[str]]

CHUNK = 5000  # lines that a process cleans at a time
#: Where lengths are counted in characters: a token is rarely longer.
_CHARACTERS_A_TOKEN = 8
_USUAL_FROM = 100_000  # first pairs of a corpus
_WARN_ABOVE = 10  # percent of the pairs that are dropped
#: The options that decide what cleaning writes.
_CLEANING = ("tokenizer", "max_tokens", "max_ratio", "punctuation", "lowercase", "hold_out")
#: Why a pair is dropped, in counts and in words.
_REASONS = {"empty": "empty", "too_long": "too long", "ratio": "of unlike lengths"}
_FORMS = 4  # of what is not restored that are shown
_REFERENCES = 2000  # lines of the test set that are compared with their tokens, joined again


def prepare(config: PrepareConfig, source: Mapping[str, Any] | None = None) -> Path:
    """Make the data folder of ``config``, or what of it is missing, and return its path.

    ``source``: where the text comes from, for the manifest.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; the same call
            resumes.
    """
    config = checked(config)
    files = input_files(config)
    options = ("vocab_size", "max_tokens", "max_ratio", "punctuation", "lowercase")
    shown = {name: getattr(config, name) for name in options}
    facts = text_facts(config.langs, config.subword, config.tokenizer, source, **shown)
    with open_manifest(config.out, PARALLEL, facts, config.workers) as manifest:
        counts = _clean(manifest, config, files)
        texts = pair_texts(config.langs, config.model_folder)
        make_subwords(manifest, config, texts)
        manifest.complete(lines={split: count["kept"] for split, count in counts.items()})
    for split, count in counts.items():
        dropped = _dropped_percent(count)
        warning = f"warning: {dropped:.0f}% dropped: " if dropped > _WARN_ABOVE else ""
        say(f"{warning}{split}: {_fates(count)}")
    if config.tokenizer == "moses":
        _say_not_restored(
            config.out / "raw" / f"test.{config.target_lang}", config.target_lang
        )
    return config.out


def pair_texts(langs: tuple[str, str], folder: str) -> dict[str, str]:
    """fairseq's name of each side of each split -> its text in a folder of the data folder."""
    return {
        f"{split}.{'-'.join(langs)}.{lang}": f"{folder}/{split}.{lang}"
        for lang in langs
        for split in SPLITS
    }


def _clean(manifest: Manifest, config: PrepareConfig, files: Inputs) -> Counts:
    """The step from files to raw/ and tokenised/: read, normalise, tokenise, clean."""
    sides = {split: list(chain(*corpora)) for split, corpora in files.items()}
    checksums = sha256_of_all(list(chain(*sides.values())), config.workers)
    made_from = {
        "inputs": {split: [checksums[side] for side in sides[split]] for split in sides},
        "options": {name: getattr(config, name) for name in _CLEANING},
        "langs": list(config.langs),
    }

    def action(work: Path) -> Counts:
        counts = {split: Counter(read=0, kept=0) for split in SPLITS}
        for folder in {"raw", config.model_folder}:
            (work / folder).mkdir()
        for split, corpora in files.items():
            for texts, fates in _cleaned(config, split, corpora):
                first = counts[split]["kept"] + counts[split]["held_out"] + 1
                numbers = range(first, first + fates["kept"])
                splits = [config.split_of(number, split) for number in numbers]
                _append(work, texts, splits)
                for other, number in Counter(splits).items():
                    if other != split:
                        counts[other].update(read=number, kept=number)
                        fates.update(held_out=number, kept=-number)
                counts[split].update(fates, read=fates.total())
            _check_kept(corpora[0], counts[split], config.max_dropped)
        if not all(count["kept"] for count in counts.values()):
            raise UserError(
                f"the training text has too few pairs for --hold-out {config.hold_out}"
            )
        return {split: dict(counter) for split, counter in counts.items()}

    return manifest.run("clean", made_from, action)


def _append(work: Path, texts: Mapping[tuple[str, str], bytes], splits: list[str]) -> None:
    """Write clean text, of which each pair has its split, to the ends of the splits' files."""
    for (folder, lang), text in texts.items():
        lines = text.splitlines(keepends=True)
        for part in set(splits):
            own = [line for line, split in zip(lines, splits, strict=True) if split == part]
            with (work / folder / f"{part}.{lang}").open("ab") as stream:
                stream.writelines(own)


def _cleaned(
    config: PrepareConfig, split: str, corpora: list[tuple[Path, ...]]
) -> Iterator[CleanText]:
    """The clean text of a split, as `clean_pairs` returns it, chunk by chunk."""
    usual = 1.0
    if split == "train" and config.counts_characters and config.max_ratio is not None:
        usual = usual_ratio(chain.from_iterable(map(read_pairs, corpora)))
    clean_pairs([], config)  # makes the tokenisers, once for all processes
    clean = partial(clean_pairs, config=config, split=split, usual=usual)
    pairs = chain.from_iterable(map(read_pairs, corpora))
    chunks = iter(lambda: list(islice(pairs, CHUNK)), [])
    total = sum(count_lines(paths[0]) for paths in corpora) // CHUNK + 1
    return ordered_map(clean, chunks, config.workers, f"clean {split}", total)


def usual_ratio(pairs: Iterable[Pair]) -> float:
    """How many characters the target usually has for one of the source's: the median."""
    sides = (map(normalise, pair) for pair in islice(pairs, _USUAL_FROM))
    ratios = [len(target) / len(source) for source, target in sides if source and target]
    return statistics.median(ratios or [1.0])


def clean_pairs(
    pairs: Sequence[Pair], config: PrepareConfig, split: str = "train", usual: float = 1.0
) -> CleanText:
    """Normalise, tokenise and filter pairs of lines of a split.

    ``usual``: the `usual_ratio` of the split.
    """
    raw = [[normalise(pair[side]) for pair in pairs] for side in (0, 1)]
    tokens = [
        model_text(lang, config.tokenizer, config.punctuation, config.lowercase)(lines)
        for lang, lines in zip(config.langs, raw, strict=True)
    ]
    max_ratio = config.max_ratio if split == "train" else None
    fates: Counter[str] = Counter()
    kept = []
    for row in zip(*raw, *tokens, strict=True):
        fate = _fate(row[:2], row[2:], config, max_ratio, usual)
        fates[fate] += 1
        if fate == "kept":
            kept.append(row)
    names = [
        (folder, lang) for folder in ("raw", config.model_folder) for lang in config.langs
    ]
    texts = {}
    for name, lines in zip(names, zip(*kept, strict=True), strict=False):
        text = "".join([f"{line}\n" for line in lines])
        texts[name] = (text.lower() if config.lowercase else text).encode()
    return texts, fates


def _fate(
    raw: Sequence[str],
    tokens: Sequence[str],
    config: PrepareConfig,
    max_ratio: float | None,
    usual: float,
) -> str:
    """One of `_REASONS`, or kept; ``raw`` and ``tokens``: source and target."""
    if not all((*raw, *tokens)):
        return "empty"
    if config.counts_characters:
        longest = max(len(raw[0]), len(raw[1])) / _CHARACTERS_A_TOKEN
        lengths: list[float] = [len(raw[0]), len(raw[1]) / usual]
        spare = _CHARACTERS_A_TOKEN  # a single word more or less makes no pair a wrong one
    else:
        lengths = [tokens[0].count(" ") + 1, tokens[1].count(" ") + 1]
        longest, spare = max(lengths), 0
    if longest > config.max_tokens:
        return "too_long"
    if max_ratio is not None and max(lengths) > max_ratio * min(lengths) + spare:
        return "ratio"
    return "kept"


def _check_kept(
    paths: tuple[Path, ...], counts: Mapping[str, int], max_dropped: float
) -> None:
    """See that a split has pairs, and not too few of what was read."""
    text = f"{paths[0]}{' and its other side' if len(paths) > 1 else ''}"
    if not counts["kept"]:
        raise UserError(f"cleaning leaves no pair of {text} ({_fates(counts)})")
    dropped = _dropped_percent(counts)
    if dropped > max_dropped:
        raise UserError(
            f"cleaning drops {dropped:.0f}% of {text} ({_fates(counts)}): check the "
            "text, relax --max-ratio or --max-tokens, or accept it with --max-dropped 100"
        )


def _fates(counts: Mapping[str, int]) -> str:
    """How many pairs of a split were kept, held out, and dropped for which reason."""
    parts = [f"{counts['kept']:,} of {counts['read']:,} pairs kept"]
    names = {"held_out": "held out", **_REASONS}
    parts += [f"{counts[name]:,} {fate}" for name, fate in names.items() if counts.get(name)]
    return ", ".join(parts)


def _dropped_percent(counts: Mapping[str, int]) -> float:
    return 100 * sum(counts.get(name, 0) for name in _REASONS) / max(1, counts["read"])


def _say_not_restored(path: Path, lang: str) -> None:
    """Say which forms in the references Moses' rules do not restore, how often, with examples."""
    split, join = tokeniser("moses", lang), detokeniser("moses", lang)
    lines = list(islice(read_lines(path), _REFERENCES))
    changed = [(line, back) for line in lines if (back := join(split(line))) != line]
    if not changed:
        return
    examples: dict[str, list[str]] = {}
    for line, back in changed:
        words = _lost(line.split(), back.split())
        form = re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "A", words))
        examples.setdefault(form, []).append(words)
    commonest = sorted(examples.items(), key=lambda each: -len(each[1]))[:_FORMS]
    forms = "; ".join(
        f"{len(found)} like {form} ({found[0]!r})" for form, found in commonest
    )
    say(
        f"test: Moses' rules do not restore {len(changed):,} of {len(lines):,} references, which "
        f"no translation can match fully: {forms}"
    )


def _lost(line: list[str], back: list[str]) -> str:
    """The words of a line from the first to the last that are not restored."""
    pairs = zip(line, back, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    ends = zip(reversed(line[start:]), reversed(back[start:]), strict=False)
    end = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    return " ".join(line[start : len(line) - end])


def prepare_segmented(
    texts: Mapping[str, Path],
    langs: tuple[str, str],
    out: Path,
    codes: Path | None = None,
    lowercase: bool = False,
    source: Mapping[str, Any] | None = None,
) -> Path:
    """Make a data folder of text that others have tokenised by Moses' rules and split by BPE.

    Nothing is dropped or changed. The plain text beside it comes from undoing the subwords, Moses'
    escapes (``&apos;``) and its tokens.

    ``texts``: split -> prefix of its two files, PREFIX.LANG, plain or compressed; ``codes``: the
    merges that the text was split by, for new text; ``lowercase``: the text is in small letters;
    ``source``: as `prepare` has it.

    Raises:
        UserError: as `prepare`.
    """
    sides = {
        split: (side_path(prefix, langs[0]), side_path(prefix, langs[1]))
        for split, prefix in texts.items()
    }
    paths = [path for pair in sides.values() for path in pair] + ([codes] if codes else [])
    made_from = {"inputs": list(sha256_of_all(paths, cores()).values())}

    def action(work: Path) -> Counts:
        """The text in subwords, and as a person writes it."""
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
                plain = plain_text(column, "bpe", ESCAPED, lang)
                write_lines(work / "raw" / f"{split}.{lang}", plain)
        return lines

    facts = text_facts(langs, "bpe", ESCAPED, source, lowercase=lowercase)
    with open_manifest(out, PARALLEL, facts, cores()) as manifest:
        lines = manifest.run("segment", made_from, action)
        make_binary(manifest, pair_texts(langs, "subword"))
        manifest.complete(lines=lines)
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe prepare``."""
    add_options(parser, PrepareConfig)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder and print its path."""
    print(prepare(from_options(PrepareConfig, args)))
