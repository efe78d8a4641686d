"""Command-line options: what argparse makes of a word."""

import contextlib
import difflib
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fairseq_mhe.common.errors import one_line

_OPTION = re.compile(r"-[^\d.]")  # neither a number nor a lone -


class Parser(ArgumentParser):
    """argparse's parser, with refusals of one line that says what to do.

    A ``Path`` is no empty word; ``nargs="+"`` adds up.
    """

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self.register("type", Path, _path)

    def add_argument(self, *names: str, **words: Any) -> Any:
        if words.get("nargs") == "+" and names[0].startswith("-"):
            words["action"] = "extend"
        return super().add_argument(*names, **words)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """argparse's, but an unknown option is an error, which names the nearest known one."""
        words = sys.argv[1:] if args is None else list(args)
        known = self._option_string_actions
        for word in words:
            is_option = _OPTION.match(word)
            if word == "--" or (self._subparsers and not is_option):
                break
            name = word.partition("=")[0]
            if is_option and not any(option.startswith(name) for option in known):
                near = difflib.get_close_matches(name, known, 1, 0.75)
                advice = f"; did you mean {near[0]}?" if near else ""
                self.error(f"unrecognized arguments: {name}{advice}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message))


def _path(text: str) -> Path:
    if text:
        return Path(text)
    raise ArgumentTypeError(
        "an empty path: name a file or folder (the current folder is .)"
    )


def at_least(least: int, most: int = 10**15) -> Callable[[str], int]:

    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        if int(text) > most:
            raise ArgumentTypeError(f"{text} is more than {most:,}")
        return int(text)

    return convert


def number_from(least: float, most: float = sys.float_info.max) -> Callable[[str], float]:

    def convert(text: str) -> float:
        with contextlib.suppress(ValueError):
            if least <= (value := float(text)) <= most:
                return value
        limit = f" and at most {most}" if most < sys.float_info.max else ""
        raise ArgumentTypeError(f"{text!r} is no number of at least {least}{limit}")

    return convert


number = number_from(0)
positive = at_least(1)
#: What numpy and fairseq take.
seed = at_least(0, 2**32 - 1)


def list_of(convert: Callable[[str], int]) -> Callable[[str], list[int]]:
    """Such numbers with commas between them, each once."""
    return lambda text: list(dict.fromkeys(map(convert, text.split(","))))


positive_list = list_of(positive)
seeds = list_of(seed)


def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Names with commas between them, or ``all``; each once."""

    def convert(text: str) -> list[str]:
        words = known if text == "all" else text.split(",")
        for word in words:
            if word not in known:
                choices = ", ".join(known)
                raise ArgumentTypeError(f"unknown {word!r}; choose of: {choices}, or all")
        return list(dict.fromkeys(words))

    return convert


def as_words(options: Mapping[str, Any]) -> list[str]:
    """A command line: True is a flag, None and False are left out, lists have commas."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            several = isinstance(value, Sequence) and not isinstance(value, str)
            words.append(",".join(map(str, value)) if several else str(value))
    return words


def add_seed(parser: ArgumentParser) -> None:
    """The option of a command that trains one model."""
    help_ = "random seed (default: %(default)s)"
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help=help_)
