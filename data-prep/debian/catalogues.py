"""gettext's catalogues: messages of programs and their translations, as plain text."""

import re
import tempfile
from collections.abc import Iterator

import polib

from debian.marks import masked, without_accelerators, without_markup
from debian.text import Pair

# Messages whose translation is a name or an address. KDE's, GNOME's, and those of others.
CREDITS = {
    "Your names",
    "Your emails",
    "NAME OF TRANSLATORS",
    "EMAIL OF TRANSLATORS",
    "ROLES_OF_TRANSLATORS",
}
CREDIT = re.compile(r"translator[-_ ]credits?|credits_?for_?translat", re.I)
KDE3_CONTEXT = re.compile(r"\A_:(?:.*\n)")
KDE3_PLURAL = re.compile(r"\A_n:\s*")
SCRIPTED = "|/|"  # KDE: what follows is for its script engine
EMPTY_LINE = re.compile(r"\n[ \t]*\n")
LISTED = re.compile(r"^(?:[ \t]{2,}|\t|-|\*)", re.M)  # a line of a table or of a list of options
ESCAPED = {"\\n": "\n", "\\t": " ", '\\"': '"'}


def messages(raw: bytes) -> Iterator[Pair]:
    """Message and translation of each entry; of plurals the first and the last of both.

    Raises:
        OSError, ValueError, struct.error: it is no catalogue, or its text is not in the encoding
        that it names.
    """
    with tempfile.NamedTemporaryFile(suffix=".mo") as file:  # polib reads from a path only
        file.write(raw)
        file.flush()
        catalogue = polib.mofile(file.name)
    for entry in catalogue:
        context = entry.msgctxt or ""
        if (
            context in CREDITS
            or entry.msgid in CREDITS
            or CREDIT.search(entry.msgid)
            or CREDIT.fullmatch(context)
        ):
            continue
        if entry.msgid_plural:
            forms = [entry.msgstr_plural[number] for number in sorted(entry.msgstr_plural)]
            yield entry.msgid, forms[0]
            yield entry.msgid_plural, forms[-1]
        else:
            yield entry.msgid, entry.msgstr


def without_kde_marks(english: str, german: str) -> Pair:
    """A pair without KDE 3's context in the message, and without scripts in the translation."""
    original = KDE3_CONTEXT.sub("", english)
    if plural := KDE3_PLURAL.match(original):
        original, german = original[plural.end() :].split("\n")[0], german.split("\n")[0]
    return original, german.split(SCRIPTED)[0]


def pieces(english: str, german: str) -> list[Pair]:
    """The paragraphs of a message, or the lines of a list; none where their numbers differ."""
    sides = [_unescaped(text).strip() for text in (english, german)]
    for pattern in (EMPTY_LINE, re.compile("\n")):
        parts = [pattern.split(side) for side in sides]
        if pattern is EMPTY_LINE or any(LISTED.search(side) for side in sides):
            if len(parts[0]) != len(parts[1]):
                return []
            if len(parts[0]) > 1:
                pairs = zip(*parts, strict=True)
                return [
                    pair
                    for one, other in pairs
                    for pair in ([(one, other)] if "\n" not in one else pieces(one, other))
                ]
    return [(sides[0], sides[1])]


def _unescaped(text: str) -> str:
    for escaped, character in ESCAPED.items():
        text = text.replace(escaped, character)
    return text


def read_catalogue(raw: bytes) -> Iterator[Pair]:
    """Paragraphs of the messages of a catalogue (.mo), without accelerators and markup.

    Places that a program fills in have letters.

    Raises:
        OSError, ValueError, struct.error: as `messages`.
    """
    for message in messages(raw):
        for english, german in pieces(*without_kde_marks(*message)):
            pair = masked(*(without_markup(side) for side in without_accelerators(english, german)))
            if pair:
                yield pair
