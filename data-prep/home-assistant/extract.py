#!/usr/bin/env python3
"""Make pairs.tsv.bz2 again from the wheel of one release of Home Assistant: its interface's texts.

It needs only Python, and always gives the same bytes: bzip2 has not changed since 2000.

    pip download --no-deps --ignore-requires-python --only-binary :all: homeassistant==2026.11.0
    python extract.py homeassistant-2026.11.0-py3-none-any.whl
"""

import argparse
import bz2
import hashlib
import json
import re
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

WHEEL_SHA256 = "7ca5fbde9dea879ac7723949fc84347aac5182e6309c357b2e4973fd391b00f7"
LICENCE_MEMBER = "homeassistant-2026.11.0.dist-info/licenses/LICENSE.md"
CORPUS = Path(__file__).parents[2] / "fairseq_mhe" / "prepare" / "corpora" / "home-assistant"
MAX_WORDS = 40
MAX_LENGTH_RATIO = 2.2
MIN_HELD_OUT_WORDS = 3  # shorter labels have no context: "Open" is Öffnen, Offen or Geöffnet
MAX_COPIED_SHARE = 0.75  # of the longer side's words
MAX_HELD_OUT_FAMILY = 150  # MQTT alone would give half of the test pairs
# Shares of the other families, by the hash of their names; about 1,000 pairs remain in each split.
TEST_SHARE, VALID_SHARE = 0.12, 0.08

LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
EMPHASIS = re.compile(r"(\*\*|\*)(?=\S)(.+?)(?<=\S)\1")
LINE_MARK = re.compile(r"^\s*(?:#+\s+|[-*•]\s+|\d+[.)]\s+)")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"„“(\[]*[A-ZÄÖÜ])")
ABBREVIATION = re.compile(r"\b(?:[A-Za-z]|e\.g|i\.e|etc|bzw)\.$")
PLACEHOLDER = re.compile(r"[{}]|\[%|%\d*[sd]\b")
CODE = re.compile(
    r"[`*|\\]|\w_|_\w|_$|<\w|</|[A-Za-z]\(\)|\w=\w|://|\bwww\.|(?:^|[\s\"'])[.~]*/\w"
    r"|\w\.(?:ya?ml|json|local|com|io|org|net|de)\b"
)


class Pair(NamedTuple):
    """One translation: the integration it comes from and its two sides, each one line of text."""

    integration: str
    en: str
    de: str


def normalised(text: str) -> str:
    """Return only the letters of ``text``, case-folded, as the leakage check compares them."""
    return "".join(filter(str.isalpha, text.casefold()))


def plain(line: str) -> str:
    """Return ``line`` without Markdown, as a user sees it."""
    line = LINE_MARK.sub("", LINK.sub(r"\1", line))
    line = EMPHASIS.sub(r"\2", EMPHASIS.sub(r"\2", line))
    return " ".join(line.split())


def sentences(line: str) -> list[str]:
    """Split ``line`` after sentence ends, but not after abbreviations."""
    parts: list[str] = []
    start = 0
    for gap in SENTENCE_END.finditer(line):
        if not ABBREVIATION.search(line[start : gap.start()]):
            parts.append(line[start : gap.start()])
            start = gap.end()
    return [*parts, line[start:]]


def similar_lengths(pair: tuple[str, str]) -> bool:
    """Whether sentences have similar lengths; 10 extra characters let short ones differ more."""
    shorter, longer = sorted(len(sentence) + 10 for sentence in pair)
    return longer <= MAX_LENGTH_RATIO * shorter


def segments(en: str, de: str) -> list[tuple[str, str]] | None:
    """Return the sentence pairs of one message, or None if its lines cannot be paired."""
    lines = [list(filter(None, map(plain, text.split("\n")))) for text in (en, de)]
    if len(lines[0]) != len(lines[1]):
        return None
    pairs = []
    for whole in zip(*lines, strict=True):
        en_sentences, de_sentences = map(sentences, whole)
        cut = list(zip(en_sentences, de_sentences, strict=False))
        pairable = len(en_sentences) == len(de_sentences) and all(map(similar_lengths, cut))
        pairs += cut if pairable else [whole]
    return pairs


def reason_to_drop(en: str, de: str) -> str | None:
    """Return why a sentence pair is not a translation example, or None if it is one."""
    both = f"{en}\n{de}"
    letters = normalised(en), normalised(de)
    words = [Counter(filter(None, map(normalised, text.split()))) for text in (en, de)]
    longer = max(words[0].total(), words[1].total())
    checks = {
        "placeholder": PLACEHOLDER.search(both),
        "code, markup or address": CODE.search(both),
        "no letters": min(map(len, letters)) < 2,
        "identical": letters[0] == letters[1],
        "too long": max(len(en.split()), len(de.split())) > MAX_WORDS,
        "mostly copied": (words[0] & words[1]).total() > MAX_COPIED_SHARE * longer,  # untranslated
    }
    return next((name for name, failed in checks.items() if failed), None)


def flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string of a translation file with its path of keys, in the file's order."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}/{key}")
        else:
            yield f"{prefix}/{key}", value


def read_messages(wheel: Path) -> Iterator[Pair]:
    """Yield every string that has both languages, by integration in alphabetical order."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith("/translations/en.json")]
        for name in sorted(names):
            german = archive.read(name.replace("/en.json", "/de.json"))
            translated = dict(flatten(json.loads(german)))
            for key, text in flatten(json.loads(archive.read(name))):
                if key in translated:
                    yield Pair(name.split("/")[-3], text, translated[key])


def clean(messages: Iterable[Pair], counts: Counter[str]) -> Iterator[Pair]:
    """Yield the usable sentence pairs; ``counts`` records how many are dropped, by reason."""
    for message in messages:
        counts["messages"] += 1
        pairs = segments(message.en, message.de)
        counts["message dropped: lines cannot be paired"] += pairs is None
        for en, de in pairs or ():
            counts["sentence pairs"] += 1
            if reason := reason_to_drop(en, de):
                counts[f"dropped: {reason}"] += 1
            else:
                yield Pair(message.integration, en, de)


def one_translation_each(pairs: Iterable[Pair]) -> list[Pair]:
    """Keep each English text once, with the German of most integrations (the first of equals)."""
    translations: dict[str, Counter[str]] = defaultdict(Counter)
    first: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        translations[pair.en][pair.de] += 1
        first.setdefault((pair.en, pair.de), pair)
    return [first[en, counter.most_common(1)[0][0]] for en, counter in translations.items()]


def held_out(pairs: list[Pair], seen: list[Pair], name: str, counts: Counter[str]) -> list[Pair]:
    """Drop short labels, repetitions, and pairs with a side that occurs in ``seen``."""
    sources = {normalised(pair.en) for pair in seen}
    targets = {normalised(pair.de) for pair in seen}
    kept = []
    for pair in pairs:
        if len(pair.en.split()) < MIN_HELD_OUT_WORDS:
            counts[f"{name} dropped: under {MIN_HELD_OUT_WORDS} words"] += 1
        elif normalised(pair.en) in sources or normalised(pair.de) in targets:
            counts[f"{name} dropped: a side occurs in an earlier split or above"] += 1
        else:
            kept.append(pair)
            sources.add(normalised(pair.en))
            targets.add(normalised(pair.de))
    return kept


def split(pairs: Iterable[Pair], counts: Counter[str]) -> dict[str, list[Pair]]:
    """Return train, valid and test, which share neither integrations nor sentences."""
    families: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        # Related integrations (victron_ble, victron_gx) share the first word of their names.
        families[pair.integration.split("_")[0]].append(pair)
    groups: dict[str, list[Pair]] = defaultdict(list)
    for name, members in families.items():
        point = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32
        chosen = "test" if point < TEST_SHARE else "valid"
        if len(members) > MAX_HELD_OUT_FAMILY or point >= TEST_SHARE + VALID_SHARE:
            chosen = "train"
        groups[chosen] += members
        counts[f"{chosen} pairs before de-duplication"] += len(members)
    train = one_translation_each(groups["train"])
    valid = held_out(groups["valid"], train, "valid", counts)
    test = held_out(groups["test"], [*train, *valid], "test", counts)
    return {"train": train, "valid": valid, "test": test}


def main() -> None:
    """Write pairs.tsv.bz2 and the licence, and print the counts."""
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("wheel", type=Path, help="the wheel of the release")
    parser.add_argument("--out", type=Path, default=CORPUS, help="folder (default: %(default)s)")
    args = parser.parse_args()
    content = args.wheel.read_bytes() if args.wheel.is_file() else b""
    if hashlib.sha256(content).hexdigest() != WHEEL_SHA256:
        sys.exit(f"extract.py: error: {args.wheel} is not the wheel: download it as in --help")
    counts: Counter[str] = Counter()
    rows = [("split", "integration", "en", "de")]
    for name, pairs in split(clean(read_messages(args.wheel), counts), counts).items():
        counts[f"{name} pairs"] = len(pairs)
        rows += [(name, *pair) for pair in pairs]
    table = bz2.compress("".join("\t".join(row) + "\n" for row in rows).encode(), 9)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "LICENSE.txt").write_bytes(zipfile.ZipFile(args.wheel).read(LICENCE_MEMBER))
    (args.out / "pairs.tsv.bz2").write_bytes(table)
    for name, count in counts.items():
        print(f"{count:>8,}  {name}")


if __name__ == "__main__":
    main()
