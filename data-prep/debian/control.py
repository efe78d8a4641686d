"""Debian's control data: stanzas of fields, in control, Packages and Translation files."""

import bz2
import gzip
import io
import lzma
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.text import as_user_errors

# How Debian compresses its lists of packages and descriptions.
OPENERS: dict[str, Callable[..., IO[Any]]] = {
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".gz": gzip.open,
    "": partial(open, mode="rb"),
}

Stanza = dict[
    str, str
]  # field -> value; the further lines of a value keep the space that they begin with


def stanzas(lines: Iterable[str]) -> Iterator[Stanza]:
    """The stanzas of a control file, which stand between empty lines (deb822(5)).

    Written here since python-debian, which reads them too, is under the GPL.
    """
    stanza: Stanza = {}
    field = ""
    for line in lines:
        text = line.rstrip("\n")
        if not text.strip():
            if stanza:
                yield stanza
            stanza, field = {}, ""
        elif text[0] in " \t":
            if field:
                stanza[field] += f"\n{text}"
        elif not text.startswith("#"):
            field, _, value = text.partition(":")
            stanza[field] = value.strip()
    if stanza:
        yield stanza


def read_stanzas(path: Path) -> Iterator[Stanza]:
    """The stanzas of a file, plain or compressed.

    Raises:
        UserError: it cannot be read, is damaged or not UTF-8.
    """
    opener = OPENERS.get(path.suffix, OPENERS[""])
    with (
        as_user_errors(path),
        opener(path) as stream,
        io.TextIOWrapper(stream, encoding="utf-8") as lines,
    ):
        try:
            yield from stanzas(lines)
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path} is not UTF-8 ({error.reason} at byte {error.start}); get the file anew"
            ) from None


def source_of(stanza: Stanza) -> str:
    """The source package of a package; packages of one source share their documents."""
    return (stanza.get("Source") or stanza["Package"]).split()[0]
