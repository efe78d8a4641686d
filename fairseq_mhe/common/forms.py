"""What a JSON file of ours holds: its form, where a value differs from it, and what to do then."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: A type; a value itself; a pattern of a text; a tuple of alternatives; [shape] of a list's values,
#: or one for each of several; {name: shape}, where "?name" may be missing and `str` is any other.
Shape = Any

#: Levels of nesting: more than any of our files has, less than ends Python's stack.
_DEEPEST = 30
#: Larger whole numbers do not fit a float, or take for ever to print.
_LARGEST = 2**63
_WORDS = {
    str: "text",  # that a file can be named by
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    dict: "an object",
    list: "a list",
}


class Number(float):
    """A number that may be none, as the loss of a training that diverged; `float` is finite."""


@dataclass(frozen=True)
class Form:
    """What a kind of file holds, and what a user can do where one holds something else."""

    shape: Shape
    advice: str


def fault(value: Any, shape: Shape) -> str | None:
    """Where a value that was read as JSON first differs from ``shape``, and how; None: nowhere."""
    if _too_deep(value):
        return f"it is nested more than {_DEEPEST} deep"
    return next(_faults(value, shape, ""), None)


def _too_deep(value: Any) -> bool:
    waiting = [(value, 0)]
    while waiting:
        value, depth = waiting.pop()
        inner: Any = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list):
            inner = value
        if depth > _DEEPEST:
            return True
        waiting += [(part, depth + 1) for part in inner]
    return False


def _faults(value: Any, shape: Shape, place: str) -> Iterator[str]:
    if isinstance(shape, tuple):
        if all(any(_faults(value, one, place)) for one in shape):
            for one in shape:
                if isinstance(value, (dict, list)) and isinstance(one, type(value)):
                    yield from _faults(value, one, place)
            yield _told(value, place, " or ".join(map(_word, shape)))
    elif isinstance(shape, dict):
        yield from _faults_of_object(value, shape, place)
    elif isinstance(shape, list):
        yield from _faults_of_list(value, shape, place)
    elif not (_is(value, shape) if isinstance(shape, type) else _same(value, shape)):
        yield _told(value, place, _word(shape))


def _faults_of_object(value: Any, shape: Mapping[Any, Shape], place: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _told(value, place, _WORDS[dict])
        return
    named = {str(name).removeprefix("?"): form for name, form in shape.items() if name is not str}
    for name, form in named.items():
        if name in value:
            yield from _faults(value[name], form, f"{place}.{name}")
        elif f"?{name}" not in shape:
            yield f"{_name(place)} has no {name!r}"
    for name in (name for name in value if name not in named):
        if not _is(name, str):
            yield f"{_name(place)} has a name that is no text, {name!r:.40}"
        if str in shape:
            yield from _faults(value[name], shape[str], f"{place}.{name:.40}")


def _faults_of_list(value: Any, shape: list[Shape], place: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield _told(value, place, _WORDS[list])
        return
    if len(shape) > 1 and len(value) != len(shape):
        yield f"{_name(place)} has {len(value)} values, not {len(shape)}"
        return
    for index, inner in enumerate(value):
        yield from _faults(inner, shape[index % len(shape)], f"{place}.{index}")


def _is(value: Any, kind: type) -> bool:
    if kind is object:
        return True
    if kind in (int, float, Number) and isinstance(value, (int, float)):
        whole = isinstance(value, int) and abs(value) < _LARGEST
        real = isinstance(value, float) and (kind is Number or math.isfinite(value))
        return not isinstance(value, bool) and (whole or (real and kind is not int))
    if kind is str and isinstance(value, str):
        return not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value)
    return type(value) is kind


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, re.Pattern):
        return _is(value, str) and wanted.fullmatch(value) is not None
    return type(value) is type(wanted) and value == wanted


def _word(shape: Shape) -> str:
    """What a value of a shape is called."""
    if isinstance(shape, (dict, list)):
        return _WORDS[type(shape)]
    if isinstance(shape, re.Pattern):
        return f"text like {shape.pattern}"
    return _WORDS.get(shape, _WORDS[float]) if isinstance(shape, type) else json.dumps(shape)


def _told(value: Any, place: str, wanted: str) -> str:
    return f"{_name(place)} is {_shown(value)}, not {wanted}"


def _shown(value: Any) -> str:
    return _WORDS[type(value)] if isinstance(value, (dict, list)) else f"{value!r:.40}"


def _name(place: str) -> str:
    return place.removeprefix(".") or "it"
