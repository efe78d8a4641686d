"""Dataclasses whose fields are command-line options."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import MISSING, Field, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Options = TypeVar("Options", bound=DataclassInstance)


def option(default: Any, help: str, **words: Any) -> Any:
    """A dataclass field that is also a command-line option; ``words`` as argparse has them.

    A field with ``default`` `dataclasses.MISSING` is required; one with False is a flag.
    """
    return field(default=default, metadata={"help": help, **words})


def add_options(parser: ArgumentParser, options: type[DataclassInstance]) -> None:
    """Add the options among the fields of ``options``."""
    for each in _options_of(options):
        words = dict(each.metadata)
        if each.default is MISSING:
            words["required"] = True
        elif each.default is False:
            words["action"] = "store_true"
        else:
            words["default"] = each.default
            if each.default not in (None, ""):
                words["help"] += " (default: %(default)s)"
        parser.add_argument(f"--{each.name.replace('_', '-')}", **words)


def from_options(options: type[Options], args: Namespace) -> Options:
    """The dataclass with the values of the command line."""
    values = {each.name: getattr(args, each.name) for each in _options_of(options)}
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    return options(**values)


def _options_of(options: type[DataclassInstance]) -> list[Field[Any]]:
    return [each for each in fields(options) if "help" in each.metadata]
