"""Tests of the split: by package, deterministic, and no near-duplicate in two splits."""

from __future__ import annotations

import random

import pytest

from debian.split import Row, key, split, unique
from fairseq_mhe.common.errors import UserError

HELD_OUT = 20


def rows() -> list[Row]:
    """300 packages of 1 to 4 pairs, of two kinds, and a large one; with near-duplicates."""
    chance = random.Random(1)
    found = [
        Row(
            "man" if package % 3 else "help",
            f"p{package}",
            (f"text {chr(97 + n)}{'ab'[n % 2] * package}", f"Text {'x' * package}{n * 'y'}"),
        )
        for package in range(1, 300)
        for n in range(1 + package % 4)
    ]
    found += [Row("man", "large", (f"large {'z' * n}", f"groß {'z' * n}")) for n in range(1, 200)]
    found += [
        Row("man", "large", (f"{chance.choice(found).pair[0].upper()}, 12!", "etwas anderes"))
        for _ in range(50)
    ]
    return found


def test_packages_and_near_duplicates_are_on_one_side() -> None:
    made = split(rows(), HELD_OUT)
    assert {name: len(made.rows[name]) for name in ("valid", "test")} == {
        "valid": HELD_OUT,
        "test": HELD_OUT,
    }
    packages = {name: {row.package for row in its} for name, its in made.rows.items()}
    assert not packages["train"] & (set(made.packages["valid"]) | set(made.packages["test"]))
    assert not set(made.packages["valid"]) & set(made.packages["test"])
    assert "large" in packages["train"]
    keys = {
        name: {key(text) for row in its for text in row.pair} for name, its in made.rows.items()
    }
    assert not keys["train"] & (keys["valid"] | keys["test"])
    assert not keys["valid"] & keys["test"]
    assert made.counts["near_duplicate_train"] > 0
    assert {row.kind for row in made.rows["test"]} == {"man", "help"}


def test_it_does_not_depend_on_the_order() -> None:
    shuffled = rows()
    random.Random(2).shuffle(shuffled)
    assert split(shuffled, HELD_OUT).packages == split(rows(), HELD_OUT).packages


def test_near_duplicates_ignore_case_digits_and_punctuation() -> None:
    assert key("The 3 Files, here!") == key("the files: HERE 12")
    assert unique([Row("man", "a", ("A b", "C")), Row("man", "b", ("a B", "c"))]) == [
        Row("man", "a", ("A b", "C"))
    ]


def test_too_few_pairs_are_told() -> None:
    with pytest.raises(UserError, match="too few to hold out 2,000"):
        split(rows(), 2000)
