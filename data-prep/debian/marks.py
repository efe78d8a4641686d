"""What interface texts have besides text: accelerators, markup, places to be filled in."""

import html
import re
from collections.abc import Iterator

from debian.text import Pair

APPENDED = re.compile(r"\s*\((?:&|_|~)\w\)")  # as in "Datei(&F)"
# A mark before a letter: of an entity (&amp;) or doubled (&&, __) it is none.
MARKS = {
    "&": re.compile(r"(?<!&)&(?=\w)(?!#?\w+;)"),
    "_": re.compile(r"(?<!_)_(?=[^\W_])"),
    "~": re.compile(r"~(?=\w)"),
}
PART = r"[\w./@#$*+&~!?:-]*"  # of a word that may be a name: of a function, file, variable, address
WORDS = {mark: re.compile(f"{PART}{mark}{PART}") for mark in MARKS}

TAG = re.compile(r"</?([a-zA-Z][\w:-]*)(?:\s[^<>]*)?/?>")
_INLINE = """
    a abbr acronym application b bcode big bold center cite code command em email emphasis envar
    filename font format header i icode img interface italic kbd keycap link markup message note
    numid nobr pre q ref resource s shortcut small span strike strong style sub sup tt tooltip tx u
    ui warning
"""
INLINE = set(_INLINE.split())
_BLOCK = """
    blockquote body br dd div dl dt h1 h2 h3 h4 h5 h6 head hr html li meta nl ol p para qt subtitle
    table tbody td th thead title tr ul list item
"""
BLOCK = set(_BLOCK.split())

# One alternative for each way of numbering: all that are in order, all that have a number, all that
# have a name.
PLACE = re.compile(
    r"%%(?P<percent>)"
    r"|%[<>'](?P<quote>)"  # GCC's quotation marks
    r"|(?<!\d)%(?P<position>\d+)\$[-+#0']*\d*(?:\.\d+)?(?:hh|ll|[hlzjtqL])?[diouxXeEfgGcsSp@]"
    r"|(?<!\d)%L?(?P<number>\d{1,2})(?!\d*\$)"
    r"|(?<!\d)%(?P<order>[-+#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hlzjtqL])?[-+#]*[a-zA-Z@](?![a-zA-Zäöüß]))"
    r"|%\((?P<python>\w+)\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]"
    r"|\$?\{(?P<brace>[^{}\s]{0,60})\}"
    r"|\$(?P<shell>[A-Za-z_][\w.]*)\|?"
    r"|(?<!\d)%(?P<upper>[A-Za-z_]{2,})%"
    r"|@(?P<at>[A-Z_]{2,})@"
)
SIGNS = {"percent": "%", "quote": "'"}  # what a program puts there itself
UNKNOWN = re.compile(r"%[A-Za-z<({]|~[a%]")  # a place that none of these describes
LETTERS = "XYZ"  # what stands for the first, second and third place of a text


def without_accelerators(english: str, german: str) -> Pair:
    """A pair without marks of shortcuts: ``&``, ``_`` and ``~`` (KDE and Qt, GTK, LibreOffice).

    A word that is the same on both sides with the mark in it (``foo_bar``, ``AT&T``) is a name and
    keeps it. Of the others, a label has one; where a side has more, they are no shortcuts.
    """
    sides = [APPENDED.sub("", text) for text in (english, german)]
    for mark in MARKS:
        words = [{_core(word[0]) for word in WORDS[mark].finditer(side)} for side in sides]
        names = {word for word in words[0] & words[1] if _is_name(word, mark)}
        sides = [_without_mark(side, mark, names) for side in sides]
    return sides[0].replace("&&", "&"), sides[1].replace("&&", "&")


def _core(word: str) -> str:
    return word.rstrip(".!?:")


def _is_name(word: str, mark: str) -> bool:
    """Whether a word that stands on both sides has the mark in its name, not on a letter."""
    return not (word.startswith(mark) and word.count(mark) == 1 and word[1:2].isupper())


def _without_mark(text: str, mark: str, names: set[str]) -> str:
    words = [
        word
        for word in WORDS[mark].finditer(text)
        if _core(word[0]) not in names and "//" not in word[0]
    ]
    marks = [
        word.start() + found.start() for word in words for found in MARKS[mark].finditer(word[0])
    ]
    return text[: marks[0]] + text[marks[0] + 1 :] if len(marks) == 1 else text


def without_markup(text: str) -> str:
    """``text`` without the tags of HTML, Pango and KDE; another word in angle brackets stays."""
    closed = {match[1].lower() for match in TAG.finditer(text) if match[0].startswith("</")}

    def plain(match: re.Match[str]) -> str:
        name = match[1].lower()
        if name in BLOCK:
            return " "
        return "" if name in INLINE or name in closed or match[0].endswith("/>") else match[0][1:-1]

    return html.unescape(TAG.sub(plain, text))


def masked(english: str, german: str) -> Pair | None:
    """A pair with letters (X, Y, Z) where a program fills something in.

    None where the places differ or are unknown.
    """
    names = _names(english)
    if sorted(names) != sorted(_names(german)) or len(set(names)) > len(LETTERS):
        return None
    letters = dict(zip(dict.fromkeys(names), LETTERS, strict=False))
    pair = _filled(english, letters), _filled(german, letters)
    return None if any(UNKNOWN.search(side) for side in pair) else pair


def _places(text: str) -> Iterator[tuple[re.Match[str], str | None]]:
    """Each match with what identifies it; None for one of `SIGNS`."""
    order = 0
    for match in PLACE.finditer(text):
        kind = match.lastgroup
        if kind in SIGNS:
            yield match, None
        elif kind == "order":
            order += 1
            yield match, str(order)
        else:
            yield match, match[kind or 0]


def _names(text: str) -> list[str]:
    return [name for _, name in _places(text) if name is not None]


def _filled(text: str, letters: dict[str, str]) -> str:
    filled, end = [], 0
    for match, name in _places(text):
        filled += [
            text[end : match.start()],
            SIGNS[match.lastgroup or ""] if name is None else letters[name],
        ]
        end = match.end()
    return "".join([*filled, text[end:]])
