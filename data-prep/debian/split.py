"""Pairs into train, valid and test, by package: no document on both sides, no near-duplicates."""

import hashlib
import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from debian.text import Pair
from fairseq_mhe.common.errors import UserError

# A package may have one in so many of a held-out set's pairs, so that several packages are in it.
LARGEST = 5
NOT_LETTERS = re.compile(r"[\W\d_]+")
HELD_OUT = ("test", "valid")


@dataclass(frozen=True)
class Row:
    """A pair, the kind of document that it is from, and the source package of that."""

    kind: str
    package: str
    pair: Pair


@dataclass
class Splits:
    """The pairs of each split, the packages of those held out, and what was left out and why."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    packages: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def key(text: str) -> str:
    """``text`` with case, digits and punctuation ignored; near-duplicates have the same."""
    return NOT_LETTERS.sub(" ", text.casefold()).strip()


def unique(rows: Iterable[Row]) -> list[Row]:
    """The first of each pair, whatever its case."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row.pair[0].casefold(), row.pair[1].casefold()), row)
    return list(first.values())


def split(rows: Sequence[Row], held_out: int) -> Splits:
    """Hold out ``held_out`` pairs for valid and as many for test, all pairs of some packages.

    Packages come in an order that depends on their names only, so that another release holds out
    nearly the same, and of each kind of document as many pairs as its share of all. A package with
    more than a fifth of ``held_out`` stays in train. Of a held-out package nothing is in another
    split; of train goes what has a near-duplicate, on either side, in valid or test, of valid what
    has one in test.

    Raises:
        UserError: there are too few pairs, or packages of the right size.
    """
    splits = Splits()
    by_package: dict[str, list[Row]] = {}
    distinct = unique(rows)
    splits.counts["duplicate"] = len(rows) - len(distinct)
    for row in distinct:
        by_package.setdefault(row.package, []).append(row)
    candidates = Candidates(by_package, held_out // LARGEST)
    known: set[str] = set()
    for name in HELD_OUT:
        chosen = splits.rows[name] = []
        splits.packages[name] = []
        while len(chosen) < held_out and (package := candidates.next(chosen)):
            splits.packages[name].append(package)
            fresh = _without(
                known, by_package.pop(package), splits.counts, f"near_duplicate_{name}"
            )
            chosen += _one_of_a_kind(fresh, chosen, splits.counts)
        if len(chosen) < held_out:
            raise UserError(
                f"{len(distinct):,} pairs are too few to hold out {held_out:,} for {name}, "
                "of packages with at most "
                f"{held_out // LARGEST:,} each; take more packages, or a smaller --held-out"
            )
        splits.counts["held_out_surplus"] += len(chosen) - held_out
        del chosen[held_out:]
        known |= {key(text) for row in chosen for text in row.pair}
    rest = [row for package in by_package.values() for row in package]
    splits.rows["train"] = _without(known, rest, splits.counts, "near_duplicate_train")
    return splits


class Candidates:
    """Packages of up to ``most`` pairs, in order, by the kind of most of their pairs."""

    def __init__(self, by_package: Mapping[str, Sequence[Row]], most: int) -> None:
        self._waiting: dict[str, deque[str]] = {}
        for name in sorted(by_package, key=lambda name: hashlib.sha256(name.encode()).digest()):
            if len(by_package[name]) <= most:
                kinds = Counter(row.kind for row in by_package[name])
                self._waiting.setdefault(kinds.most_common(1)[0][0], deque()).append(name)
        totals = Counter(row.kind for rows in by_package.values() for row in rows)
        self._shares = {kind: totals[kind] / totals.total() for kind in self._waiting}

    def next(self, chosen: Sequence[Row]) -> str | None:
        """The next package, of the kind that ``chosen`` lacks most; None where none is left."""
        have = Counter(row.kind for row in chosen)
        lacking = {
            kind: share * len(chosen) - have[kind]
            for kind, share in self._shares.items()
            if self._waiting[kind]
        }
        return self._waiting[max(lacking, key=lacking.__getitem__)].popleft() if lacking else None


def _without(known: set[str], rows: Sequence[Row], counts: Counter[str], name: str) -> list[Row]:
    """The rows of which neither side is a near-duplicate of one that is known."""
    fresh = [row for row in rows if not known & {key(text) for text in row.pair}]
    counts[name] += len(rows) - len(fresh)
    return fresh


def _one_of_a_kind(rows: Sequence[Row], chosen: Sequence[Row], counts: Counter[str]) -> list[Row]:
    """The rows whose English is no near-duplicate of one before, so that none is tested twice."""
    seen = {key(row.pair[0]) for row in chosen}
    fresh: list[Row] = []
    for row in rows:
        english = key(row.pair[0])
        if english not in seen:
            seen.add(english)
            fresh.append(row)
    counts["near_duplicate_within"] += len(rows) - len(fresh)
    return fresh
