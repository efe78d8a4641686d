"""From parallel text to a data folder: read, normalise, tokenise, clean, learn, segment, binarise.

`prepare` takes plain text; `prepare_segmented` takes text in subwords, which enters after segment.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256_of_all
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.binarise import make_binary
from fairseq_mhe.prepare.clean import (
    CleanText,
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
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, Manifest, open_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from fairseq_mhe.prepare.progress import report
from fairseq_mhe.prepare.steps import heading, make_subwords
from fairseq_mhe.prepare.subword import MODEL_NAMES
from fairseq_mhe.prepare.text import (
    SUFFIXES,
    aligned_lines,
    count_lines,
    read_lines,
    read_pairs,
    side_path,
    total_size,
    write_lines,
)
from fairseq_mhe.prepare.text_processing import plain_text
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser, tokeniser

CHUNK = 5000  # lines that a process cleans at a time
_CLEAN_ROOM = 2.5  # bytes that cleaning writes for each byte of text, with some to spare
_COMPRESSION = 4  # of text, roughly
WARN_ABOVE = 10  # percent of the pairs that are dropped
#: The options that decide what cleaning writes.
_CLEANING = ("tokenizer", "max_tokens", "max_ratio", "punctuation", "lowercase", "hold_out")
_REFERENCES = 2000  # lines of the test set that are compared with their tokens, joined again


def prepare(
    config: PrepareConfig, source: Mapping[str, Any] | None = None, files: Inputs | None = None
) -> Path:
    """Make the data folder of ``config``, or what of it is missing, and return its path.

    ``source``: where the text comes from, for the manifest; ``files``: the text, in place of the
    files that ``config`` names.

    Raises:
        UserError: an option or an input is bad, or the folder cannot be written; the same call
            resumes.
    """
    check(config)
    files = files or input_files(config)
    config = with_defaults(config)
    options: dict[str, Any] = {"max_tokens": config.max_tokens, "max_ratio": config.max_ratio}
    if config.subword == "sentencepiece":
        options["model_type"] = config.model_type
    options |= {"punctuation": config.punctuation, "lowercase": config.lowercase}
    top = heading(
        PARALLEL,
        config.langs,
        config.subword,
        config.tokenizer,
        options,
        source,
        vocab_size=config.vocab_size,
    )
    with open_manifest(config.out, top, config.cores) as manifest:
        counts = _clean(manifest, config, files)
        lines = {split: counts[split]["kept"] for split in SPLITS}
        texts = pair_texts(config.langs, config.model_folder)
        dictionaries = [f"dict.{lang}.txt" for lang in config.langs]
        make_subwords(manifest, config, texts, dictionaries, lines)
        manifest.complete(lines=lines)
    _say_dropped(counts)
    if config.tokenizer == "moses":
        _say_not_restored(config.out / "raw" / f"test.{config.target_lang}", config.target_lang)
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
    sides = [side for corpora in files.values() for paths in corpora for side in paths]
    checksums = sha256_of_all(sides, config.cores)
    made_from = {
        "inputs": {
            split: [[checksums[side] for side in paths] for paths in corpora]
            for split, corpora in files.items()
        },
        "options": {name: getattr(config, name) for name in _CLEANING},
        "langs": list(config.langs),
        "sacremoses": manifest.content["versions"]["sacremoses"],
    }
    total = sum(count_lines(paths[0]) for corpora in files.values() for paths in corpora)
    packed = [side for side in sides if side.suffix in SUFFIXES[1:]]
    size = total_size(sides) + (_COMPRESSION - 1) * total_size(packed)

    def action(work: Path) -> Counts:
        counts = {split: Counter(read=0, kept=0) for split in SPLITS}
        done = 0
        for folder in {"raw", config.model_folder}:
            (work / folder).mkdir()
        for split, corpora in files.items():
            for clean in _cleaned(config, split, corpora):
                for (folder, lang), text in clean.texts.items():
                    with (work / folder / f"{split}.{lang}").open("ab") as stream:
                        stream.write(text)
                counts[split].update(clean.counts, read=clean.counts.total())
                done += clean.counts.total()
                report("clean", done, total)
            _check_kept(corpora, counts[split], config.max_dropped)
        if config.hold_out:
            _hold_out(work, config, counts)
        return {split: dict(counter) for split, counter in counts.items()}

    return manifest.run("clean", made_from, action, _CLEAN_ROOM * size, total)


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


def _check_kept(
    corpora: list[tuple[Path, ...]], counts: Mapping[str, int], max_dropped: float
) -> None:
    """See that a split has pairs, and not too few of what was read."""
    text = f"{corpora[0][0]}{' and its other side' if len(corpora[0]) > 1 else ''}"
    if not counts["kept"]:
        raise UserError(f"cleaning leaves no pair of {text} ({fates(counts)})")
    dropped = dropped_percent(counts)
    if dropped > max_dropped:
        raise UserError(
            f"cleaning drops {dropped:.0f}% of {text} ({fates(counts)}): check the "
            "text, relax --max-ratio or --max-tokens, or accept it with --max-dropped 100"
        )


def _hold_out(work: Path, config: PrepareConfig, counts: Mapping[str, Counter[str]]) -> None:
    """Move pairs from the clean train text to the splits that have no text."""
    numbers = range(1, counts["train"]["kept"] + 1)
    pairs = Counter(map(config.split_of, numbers))
    for split in config.held_out:
        if not pairs[split]:
            raise UserError(
                f"the training text has too few pairs to hold out every {config.hold_out}th of them"
            )
        counts["train"].update(kept=-pairs[split], held_out=pairs[split])
        counts[split].update(read=pairs[split], kept=pairs[split])
    for path in sorted(work.glob("*/train.*")):
        whole = path.rename(work / "whole")
        with ExitStack() as stack:
            lines = stack.enter_context(whole.open("rb"))
            streams = {
                split: stack.enter_context(path.with_stem(split).open("wb")) for split in pairs
            }
            for number, line in zip(numbers, lines, strict=True):
                streams[config.split_of(number)].write(line)
        whole.unlink()


def _say_dropped(counts: Counts) -> None:
    """Say what cleaning has dropped."""
    for split, count in counts.items():
        dropped = dropped_percent(count)
        warning = f"warning: {dropped:.0f}% dropped: " if dropped > WARN_ABOVE else ""
        say(f"{warning}{split}: {fates(count)}")


def _say_not_restored(path: Path, lang: str) -> None:
    """Say how many references Moses' rules do not restore, with an example."""
    split, join = tokeniser("moses", lang), detokeniser("moses", lang)
    lines = list(islice(read_lines(path), _REFERENCES))
    changed = [(line, back) for line in lines if (back := join(split(line))) != line]
    if changed:
        line, back = changed[0]
        say(
            f"test: Moses' rules do not restore {len(changed):,} of {len(lines):,} references, "
            f"which no translation can match fully: {line!r} becomes {back!r}"
        )


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

    Args:
        texts: split -> prefix of its two files, PREFIX.LANG, plain or compressed.
        langs: source and target.
        out: the folder to make.
        codes: the merges that the text was split by, for new text.
        lowercase: the text is in small letters.
        source: as `prepare` has it.

    Raises:
        UserError: as `prepare`.
    """
    files: dict[str, Path] = {}
    lines = {}
    for split, prefix in texts.items():
        source_side, target_side = (side_path(prefix, lang) for lang in langs)
        lines[split] = aligned_lines(source_side, target_side)
        files |= {f"{split}.{langs[0]}": source_side, f"{split}.{langs[1]}": target_side}
    if codes is not None:
        files[MODEL_NAMES["bpe"]] = codes
    top = heading(PARALLEL, langs, "bpe", ESCAPED, {"lowercase": lowercase}, source)
    checksums = sha256_of_all(list(files.values()), cores())
    made_from = {
        "inputs": {name: checksums[path] for name, path in files.items()},
        "sacremoses": top["versions"]["sacremoses"],
    }
    with open_manifest(out, top, cores()) as manifest:
        action = partial(_take, files, langs)
        manifest.run("segment", made_from, action, total=2 * sum(lines.values()))
        dictionaries = [f"dict.{lang}.txt" for lang in langs]
        make_binary(manifest, pair_texts(langs, "subword"), dictionaries)
        manifest.complete(lines=lines)
    return out


def _take(files: Mapping[str, Path], langs: tuple[str, str], work: Path) -> None:
    """The text in subwords, and as a person writes it."""
    for folder in ("subword", "raw"):
        (work / folder).mkdir()
    for name, path in files.items():
        lines = list(read_lines(path))
        write_lines(work / "subword" / name, lines)
        lang = name.rpartition(".")[2]
        if lang in langs:
            write_lines(work / "raw" / name, plain_text(lines, "bpe", ESCAPED, lang))
