"""Command-line options: what argparse makes of a word, and dataclasses whose fields are options."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Made = TypeVar("Made", bound=DataclassInstance)


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


def option(default: Any, help: str, **words: Any) -> Any:
    """A dataclass field that is also a command-line option; ``words`` as argparse has them.

    A field with ``default`` `dataclasses.MISSING` is required; one with False is a flag.
    """
    return field(default=default, metadata={"help": help, **words})


def add_options(
    parser: ArgumentParser, options: type[DataclassInstance], last: type[DataclassInstance]
) -> None:
    """The options among the fields of ``options``, those that it has from ``last`` last."""
    inherited = {each.name for each in fields(last)}
    for each in sorted(_options_of(options), key=lambda each: each.name in inherited):
        words = dict(each.metadata)
        if each.default is MISSING:
            words["required"] = True
        elif each.default is False:
            words["action"] = "store_true"
        else:
            words["default"] = each.default
            if isinstance(each.default, int | float | Path) or each.default in words.get(
                "choices", ()
            ):
                words["help"] += " (default: %(default)s)"
        parser.add_argument(f"--{each.name.replace('_', '-')}", **words)


def from_options(options: type[Made], args: Namespace) -> Made:
    """The dataclass with what the command line says."""
    values = {each.name: getattr(args, each.name) for each in _options_of(options)}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    return options(**values)


def _options_of(options: type[DataclassInstance]) -> list[Field[Any]]:
    return [each for each in fields(options) if "help" in each.metadata]
