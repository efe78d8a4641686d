"""Which files of a package are read, and which English document belongs to which German one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAN, HELP, LIBREOFFICE, GETTEXT, LYX, ENTITIES = (
    "man",
    "help",
    "libreoffice",
    "gettext",
    "lyx",
    "entities",
)
PARALLEL = (MAN, HELP, LIBREOFFICE, LYX)  # kinds of documents that come in both languages
# Kind -> paths in packages, in both languages.
PATHS: dict[str, re.Pattern[str]] = {
    MAN: re.compile(r"usr/share/man/(?:de/)?man[1-9]\w*/[^/]+\.gz"),
    LIBREOFFICE: re.compile(r"usr/share/libreoffice/help/(?:en-US|de)/text/.+\.html"),
    LYX: re.compile(r"usr/share/lyx/(?:doc|examples)/(?:de/)?[^/]+\.lyx"),
    HELP: re.compile(
        r"usr/share/doc/HTML/(?:en|de)/.+\.docbook"
        r"|usr/share/help/(?:C|de)/.+\.(?:page|docbook|xml)"
        r"|usr/share/gimp/[\d.]+/help/(?:en|de)/.+\.html"
        r"|usr/share/genius/help/(?:C|de)/html/.+\.html"
        r"|usr/share/doc/debian-handbook/html/(?:en-US|de-DE)/.+\.html"
        r"|usr/share/doc/(?:installation-guide-\w+|dia/html)/(?:en|de)/[^/]+\.html"
        r"|usr/share/(?:doc/)?developers-reference/(?:de/)?[^/]+\.html"
        r"|usr/share/doc/debian-edu-doc-(?:en|de)/[^/]+\.html"
        r"|usr/share/doc/apt-doc/\w+(?:\.de)?\.html/[^/]+\.html"
        r"|usr/share/liferea/doc/html/[^/]+_(?:en|de)\.html"
        r"|usr/share/.+\.(?:en|de)\.html"
    ),
    # The one kind with both languages in one file.
    GETTEXT: re.compile(r"usr/.+/(?:de|de_DE)/LC_MESSAGES/[^/]+\.mo|usr/.+/(?:[^/]+-)?de_DE\.mo"),
    ENTITIES: re.compile(
        r"usr/share/kf\d/kdoctools/customization/(?:entities|en|de)/[^/]+\.entities"
    ),
}
GERMAN = re.compile(r"(?<=/)de(?:-DE)?/|[-._]de(?=[./])")
LANGUAGE = re.compile(r"(?<=/)(?:C|en|en-US|de|de-DE)/|[-._](?:C|en|de)(?=[./])")


@dataclass(frozen=True)
class Document:
    """A file in a package; ``package`` is its number among those that are read."""

    package: int
    path: str


def kind_of(path: str) -> str | None:
    """The kind of document that ``path`` is in a package, if it is one to be read."""
    return next((kind for kind, pattern in PATHS.items() if pattern.fullmatch(path)), None)


def is_wanted(path: str) -> bool:
    """Whether ``path`` in a package is a document to be read; it may be no text."""
    return path.isprintable() and kind_of(path) is not None


def matched(documents: Iterable[Document]) -> list[tuple[Document, Document]]:
    """English and German documents of one kind whose paths differ in the language only.

    The English one is of the same package if that has one; else of the first package that has.
    """
    german: list[Document] = []
    english: dict[str, dict[int, Document]] = {}  # path without its language -> package -> document
    for document in documents:
        if GERMAN.search(document.path):
            german.append(document)
        else:
            english.setdefault(LANGUAGE.sub("", document.path), {})[document.package] = document
    pairs = []
    for document in german:
        if originals := english.get(LANGUAGE.sub("", document.path)):
            first = next(iter(originals.values()))
            pairs.append((originals.get(document.package, first), document))
    return pairs
