"""Types of command-line options: what argparse makes of a word, or refuses in one line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable


def at_least(least: int) -> Callable[[str], int]:
    """A whole number that is not smaller than ``least``."""

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return convert


positive = at_least(1)


def positive_list(text: str) -> list[int]:
    """Whole numbers of 1 or more with commas between them."""
    return [positive(word) for word in text.split(",")]


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Names with commas between them, or ``all``; each once."""

    def convert(text: str) -> list[str]:
        if text == "all":
            return list(known)
        for word in text.split(","):
            if word not in known:
                choices = ", ".join(known)
                raise ArgumentTypeError(f"unknown {word!r}; choose of: {choices}, or all")
        return list(dict.fromkeys(text.split(",")))

    return convert
