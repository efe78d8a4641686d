"""From parallel text to a data folder: read, normalise, tokenise, clean, learn, segment, binarise.

`prepare` takes plain text; `prepare_segmented` takes text in subwords, which enters after segment.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256, sha256_of_all
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.clean import (
    CleanText,
    CleanWriter,
    clean_pairs,
    dropped_percent,
    fates,
    usual_ratio,
)
from fairseq_mhe.prepare.config import (
    SPLITS,
    Inputs,
    PrepareConfig,
    check,
    input_files,
    with_defaults,
)
from fairseq_mhe.prepare.manifest import Counts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.steps import learn, make_binary, segment, versions
from fairseq_mhe.prepare.subword import MODEL_NAMES, SPECIAL_SYMBOLS
from fairseq_mhe.prepare.text import (
    SUFFIXES,
    aligned_lines,
    count_lines,
    read_lines,
    read_pairs,
    side_path,
    write_lines,
)
from fairseq_mhe.prepare.text_processing import plain_text
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser, tokeniser

CHUNK = 5000  # lines that a process cleans at a time
_COMPRESSION = 4  # of text, roughly
_CLEAN_ROOM = 2.5  # bytes written for each byte of text: twice the text, with some to spare
WARN_ABOVE = 10  # percent of the pairs that are dropped
#: The options that decide what cleaning writes.
_CLEANING = ("tokenizer", "max_tokens", "max_ratio", "punctuation", "lowercase")
_REFERENCES = 2000  # lines of the test set that are looked at
_FORMS = 4  # that are shown, the commonest


def prepare(
    config: PrepareConfig,
    report: Report = silent,
    source: Mapping[str, Any] | None = None,
    files: Inputs | None = None,
) -> Path:
    """Make the data folder of ``config``, or what of it is missing, and return its path.

    Args:
        config: what to prepare, and how.
        report: called with the progress.
        source: where the text comes from, for the manifest.
        files: the text, in place of the files that ``config`` names.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; the same call
            resumes.
    """
    check(config)
    files = files or input_files(config)
    config = with_defaults(config)
    with open_manifest(config.out, _heading(config, source), config.cores) as manifest:
        counts = _clean(manifest, config, files, report)
        lines = {split: counts[split]["kept"] for split in SPLITS}
        texts = [
            manifest.folder / config.model_folder / f"{split}.{lang}"
            for split in SPLITS
            for lang in config.langs
        ]
        model = learn(manifest, config, texts[:2], 2 * lines["train"], report)
        segment(manifest, texts, model, config.cores, report)
        _binarise(manifest, config.langs, config.cores, report)
        manifest.complete(lines=lines)
        _tell(manifest, config)
    return config.out


def _heading(config: PrepareConfig, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """The manifest's keys above the steps.

    They hold no path, no time and no machine, so that equal data have equal manifests.
    """
    options: dict[str, Any] = {"max_tokens": config.max_tokens, "max_ratio": config.max_ratio}
    if config.subword == "sentencepiece":
        options["model_type"] = config.model_type
    options |= {name: True for name in ("punctuation", "lowercase") if getattr(config, name)}
    return {
        "source_lang": config.source_lang,
        "target_lang": config.target_lang,
        "subword": config.subword,
        "vocab_size": config.vocab_size,
        "tokenizer": config.tokenizer,
        "options": options,
        "versions": versions("sacremoses", "sentencepiece", "subword-nmt"),
        **({"source": source} if source else {}),
    }


def _clean(manifest: Manifest, config: PrepareConfig, files: Inputs, report: Report) -> Counts:
    """The step from files to raw/ and tokenised/: read, normalise, tokenise, clean."""
    sides = [side for pairs in files.values() for pair in pairs for side in pair]
    checksums = sha256_of_all(sides, config.cores)
    made_from = {
        "inputs": {
            split: [[checksums[side] for side in pair] for pair in pairs]
            for split, pairs in files.items()
        },
        "options": {name: getattr(config, name) for name in _CLEANING},
        "langs": list(config.langs),
        "sacremoses": manifest.content["versions"]["sacremoses"],
        "hold_out": config.hold_out,
    }
    action = partial(_write_clean, config=config, files=files, report=report)
    room = _CLEAN_ROOM * sum(map(_expanded_size, sides))
    counts = manifest.run("clean", made_from, action, room)
    pairs = sum(count["kept"] for count in counts.values())
    report("clean", pairs, pairs)
    return counts


def _expanded_size(path: Path) -> int:
    """The bytes of a text, estimated if it is compressed."""
    return path.stat().st_size * (_COMPRESSION if path.suffix in SUFFIXES[1:] else 1)


def _write_clean(work: Path, config: PrepareConfig, files: Inputs, report: Report) -> Counts:
    total = sum(count_lines(paths[0]) for corpora in files.values() for paths in corpora)
    done = 0
    counts = {split: Counter(read=0, kept=0) for split in SPLITS}
    with ExitStack() as stack:
        write = CleanWriter(work, config, stack)
        for split, corpora in files.items():
            for clean in _cleaned(config, split, corpora):
                counts[split].update(clean.counts, read=clean.counts.total())
                for other, pairs in write(split, clean).items():
                    counts[split].update(kept=-pairs, held_out=pairs)
                    counts[other].update(read=pairs, kept=pairs)
                done += clean.counts.total()
                report("clean", min(done, total - 1), total)
    _check_kept(config, files, counts)
    return {split: dict(counter) for split, counter in counts.items()}


def _cleaned(
    config: PrepareConfig, split: str, corpora: list[tuple[Path, ...]]
) -> Iterator[CleanText]:
    """The clean text of a split, block by block."""
    usual = 1.0
    if split == "train" and config.counts_characters and config.max_ratio is not None:
        usual = usual_ratio(chain.from_iterable(map(read_pairs, corpora)))
    clean_pairs([], config)  # makes the tokenisers, once for all processes
    clean = partial(clean_pairs, config=config, split=split, usual=usual)
    pairs = chain.from_iterable(map(read_pairs, corpora))
    chunks = iter(lambda: list(islice(pairs, CHUNK)), [])
    return ordered_map(clean, chunks, config.cores)


def _check_kept(config: PrepareConfig, files: Inputs, counts: Mapping[str, Counter[str]]) -> None:
    """See that every split has pairs, and not too few of what was read."""
    for split, corpora in files.items():
        text = f"{corpora[0][0]}{' and its other side' if len(corpora[0]) > 1 else ''}"
        if not counts[split]["kept"]:
            raise UserError(f"cleaning leaves no pair of {text} ({fates(counts[split])})")
        dropped = dropped_percent(counts[split])
        if dropped > config.max_dropped:
            raise UserError(
                f"cleaning drops {dropped:.0f}% of {text} ({fates(counts[split])}): check the "
                "text, relax --max-ratio or --max-tokens, or accept it with --max-dropped 100"
            )
    for split in config.held_out:
        if not counts[split]["kept"]:
            raise UserError(
                f"the training text is too short to hold out every {config.hold_out}th pair of it"
            )


def _binarise(manifest: Manifest, langs: tuple[str, str], workers: int, report: Report) -> None:
    """Both sides of every split in fairseq's binary form."""
    names = [f"dict.{lang}.txt" for lang in langs]
    texts = pair_texts(manifest.folder / "subword", langs)
    make_binary(manifest, texts, names, workers, report)


def pair_texts(subwords: Path, langs: tuple[str, str]) -> dict[str, Path]:
    """fairseq's name of each side of each split -> its text in the folder ``subwords``."""
    return {
        f"{split}.{'-'.join(langs)}.{lang}": subwords / f"{split}.{lang}"
        for lang in langs
        for split in SPLITS
    }


def _tell(manifest: Manifest, config: PrepareConfig) -> None:
    """Say what cleaning has dropped, and which references Moses' rules do not restore."""
    for split, counts in manifest.content["steps"]["clean"]["counts"].items():
        dropped = dropped_percent(counts)
        warning = f"warning: {dropped:.0f}% dropped: " if dropped > WARN_ABOVE else ""
        say(f"{warning}{split}: {fates(counts)}")
    if config.tokenizer == "moses":
        lang = config.target_lang
        lines = list(islice(read_lines(manifest.folder / "raw" / f"test.{lang}"), _REFERENCES))
        if changed := not_restored(lines, lang):
            forms = Counter(form for form, _ in changed).most_common(_FORMS)
            examples = dict(reversed(changed))  # the first of each form
            listed = "; ".join(f"{count:,} like {form} ({examples[form]})" for form, count in forms)
            say(
                f"test: Moses' rules do not restore {len(changed):,} of {len(lines):,} references, "
                f"which no translation can match fully: {listed}"
            )


def not_restored(lines: list[str], lang: str) -> list[tuple[str, str]]:
    """Form and example of the first place of each line that Moses' rules change.

    The rules are those of tokenising and detokenising ``lang``. A form is the changed words with
    ``A`` for letters and digits: ``A/A`` of "and/or".
    """
    split, join = tokeniser("moses", lang), detokeniser("moses", lang)
    changed = []
    for number, line in enumerate(lines, start=1):
        back = join(split(line))
        if back != line:
            before = _words_at(line, _first_difference(line, back))
            changed.append((re.sub(r"\w+", "A", before), f"line {number}: {before}"))
    return changed


def _first_difference(line: str, back: str) -> int:
    """The first place in which two texts differ."""
    pairs = enumerate(zip(line, back, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(line), len(back)))


def _words_at(line: str, place: int) -> str:
    """The word at a place of ``line``; at a space between words, both."""
    start = line.rfind(" ", 0, place) + 1
    end = line.find(" ", place + 1)
    return line[start : end if end >= 0 else len(line)]


def prepare_segmented(
    texts: Mapping[str, Path],
    langs: tuple[str, str],
    out: Path,
    codes: Path | None = None,
    lowercase: bool = False,
    source: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Path:
    """Make a data folder of text that others have tokenised by Moses' rules and split by BPE.

    Nothing is dropped or changed. The plain text beside it is made by undoing the subwords, Moses'
    escapes (``&apos;``) and its tokens.

    Args:
        texts: split -> prefix of its two files, PREFIX.LANG, plain or compressed.
        langs: source and target.
        out: the folder to make.
        codes: the merges that the text was split by, for new text.
        lowercase: the text is in small letters.
        source: where it comes from, for the manifest.
        report: called with the progress.

    Raises:
        UserError: a file is missing, is not clean text, or differs from its other side in length;
            or the folder cannot be written.
    """
    files = {f"{split}.{lang}": side_path(texts[split], lang) for split in SPLITS for lang in langs}
    lines = {
        split: aligned_lines(*(files[f"{split}.{lang}"] for lang in langs)) for split in SPLITS
    }
    if codes is not None:
        files[MODEL_NAMES["bpe"]] = codes
    heading: dict[str, Any] = {
        "source_lang": langs[0],
        "target_lang": langs[1],
        "subword": "bpe",
        "tokenizer": ESCAPED,
        "options": {"lowercase": True} if lowercase else {},
        "versions": versions("sacremoses"),
        **({"source": source} if source else {}),
    }
    total = 2 * sum(lines.values())
    with open_manifest(out, heading) as manifest:
        checksums = {name: sha256(path) for name, path in files.items()}
        made_from = {"inputs": checksums, "sacremoses": heading["versions"]["sacremoses"]}
        report("segment", 0, total)
        manifest.run("segment", made_from, partial(_take, files, langs))
        report("segment", total, total)
        _binarise(manifest, langs, cores(), report)
        manifest.complete(lines=lines)
    return out


def _take(files: Mapping[str, Path], langs: tuple[str, str], work: Path) -> Counts:
    """The text in subwords, and as a person writes it."""
    for folder in ("subword", "raw"):
        (work / folder).mkdir()
    for name, path in files.items():
        lines = list(read_lines(path))
        write_lines(work / "subword" / name, lines)
        lang = name.rpartition(".")[2]
        if lang in langs:
            _check_segmented(path, lines)
            write_lines(work / "raw" / name, plain_text(lines, "bpe", ESCAPED, lang))
    return {}


def _check_segmented(path: Path, lines: list[str]) -> None:
    """fairseq would train on a pair without a side, and end sentences at its own symbols."""
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words:
            raise UserError(f"{path}, line {number}, is empty: remove the pair from both sides")
        if special := SPECIAL_SYMBOLS.intersection(words):
            raise UserError(
                f"{path}, line {number}, has {min(special)}, which fairseq takes for its own "
                "symbol: remove the pair from both sides, or the word"
            )
