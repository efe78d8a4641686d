"""The commands' parser, options as fields of dataclasses, and converters of options' values."""

import contextlib
import difflib
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, _ActionsContainer
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, NoReturn

from fairseq_mhe.common.errors import one_line

_OPTION = re.compile(r"-[^\d.]")  # matches neither a number such as -1 nor a lone -
_OVERRIDE = re.compile(r"\+?\w+\.[\w.]+=")  # an option of a recipe: GROUP.NAME=VALUE


class Parser(ArgumentParser):
    """argparse's parser with error messages of one line that say what to do.

    It rejects empty paths. An option with ``nargs="+"`` that occurs twice collects all values.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", Path, _path)

    def add_argument(self, *names: str, **kwargs: Any) -> Any:
        if kwargs.get("nargs") == "+" and names[0].startswith("-"):
            kwargs["action"] = "extend"
        return super().add_argument(*names, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but reject unknown words, and name the most similar option."""
        words = sys.argv[1:] if args is None else list(args)
        overrides = []
        if any(action.dest == "overrides" for action in self._actions):
            # They may stand anywhere, where argparse would take them for other arguments.
            overrides = list(filter(_OVERRIDE.match, words))
            words = [word for word in words if not _OVERRIDE.match(word)]
        self._refuse_unknown_options(words)
        namespace, rest = super().parse_known_args(words, namespace)
        if rest and not hasattr(namespace, "files"):
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        if rest:  # argparse ends a list of files at the next option
            namespace.files += map(Path, rest)
        if overrides:
            namespace.overrides = overrides
        return namespace, []

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        known = self._option_string_actions
        for word in words:
            is_option = _OPTION.match(word)
            # After the name of a subcommand, the subcommand's own parser checks the options.
            if word == "--" or (self._subparsers and not is_option):
                return
            name = word.partition("=")[0]
            if is_option and not any(option.startswith(name) for option in known):
                similar = difflib.get_close_matches(name, known, 1, 0.75)
                advice = f"; did you mean {similar[0]}?" if similar else ""
                self.error(f"unrecognized arguments: {name}{advice}")

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


def _path(text: str) -> Path:
    if text:
        return Path(text)
    raise ArgumentTypeError("the path is empty: give a file or folder (. is this folder)")


def at_least(low: int, high: int = 10**15) -> Callable[[str], int]:
    """Return a converter that accepts whole numbers from ``low`` to ``high``."""

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < low:
            raise ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
        if int(text) > high:
            raise ArgumentTypeError(f"{text} is more than {high:,}")
        return int(text)

    return convert


def number_from(low: float, high: float = sys.float_info.max) -> Callable[[str], float]:
    """Return a converter that accepts numbers from ``low`` to ``high``."""

    def convert(text: str) -> float:
        with contextlib.suppress(ValueError):
            if low <= (value := float(text)) <= high:
                return value
        limit = f" and at most {high}" if high < sys.float_info.max else ""
        raise ArgumentTypeError(f"{text!r} is not a number of at least {low}{limit}")

    return convert


number = number_from(0)
positive = at_least(1)
threads = at_least(1, 1024)  # OpenMP crashes if it is asked for many thousands
#: The range of seeds that both numpy and fairseq accept.
seed = at_least(0, 2**32 - 1)


def list_of(convert: Callable[[str], int]) -> Callable[[str], list[int]]:
    """Return a converter of numbers that are separated by commas; it drops duplicates."""
    return lambda text: list(dict.fromkeys(map(convert, text.split(","))))


positive_list = list_of(positive)
seeds = list_of(seed)


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a converter of ``all``, or of names separated by commas; it drops duplicates."""

    def convert(text: str) -> list[str]:
        names = known if text == "all" else text.split(",")
        for name in names:
            if name not in known:
                choices = ", ".join([*known, "all"])
                raise ArgumentTypeError(f"unknown {name!r}; choose from {choices}")
        return list(dict.fromkeys(names))

    return convert


def as_words(options: Mapping[str, Any]) -> list[str]:
    """Return command-line words: a flag for True, none for None and False, lists with commas."""
    words = []
    for name, value in options.items():
        if name == "left_pad_source":  # fairseq's only flag that turns its option off
            value = not value
        if value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            is_list = isinstance(value, Sequence) and not isinstance(value, str)
            words.append(",".join(map(str, value)) if is_list else str(value))
    return words


def add_seed(parser: ArgumentParser) -> None:
    """Add the option ``--seed``, for commands that use one seed; `seeds` converts several."""
    help_ = "random seed (default: %(default)s)"
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help=help_)


def option(default: Any, help: str, **arguments: Any) -> Any:
    """Return a dataclass field that is also an option; ``arguments`` go to `add_argument`."""
    return field(default=default, metadata={"help": help, **arguments})


def integer(default: int | None, help: str, minimum: int = 1) -> Any:
    """Return the field of an option that takes a whole number of at least ``minimum``."""
    return option(default, help, type=at_least(minimum), metavar="N")


def add_options(parser: _ActionsContainer, options: type[Any]) -> None:
    """Add an option for each field that `option` made; one with default False is a flag.

    A field with ``positional=True`` becomes an argument without a flag.
    """
    for item in fields(options):
        arguments = dict(item.metadata)
        if not arguments:
            continue
        flag = f"--{item.name.replace('_', '-')}"
        if arguments.pop("positional", False):
            flag = item.name
        if item.default is False:
            arguments["action"] = "store_true"
        elif not arguments.get("required"):
            arguments["default"] = default = item.default
            if isinstance(default, tuple):
                default = ",".join(map(str, default))
            if default not in (None, ""):
                arguments["help"] += f" (default: {default})"
        parser.add_argument(flag, **arguments)


def from_options(options: type[Any], args: Namespace) -> Any:
    """Return an instance of the dataclass ``options`` with the values of the command line."""
    names = [item.name for item in fields(options) if item.metadata]
    return options(**{name: getattr(args, name) for name in names})
