"""LibreOffice's help: paragraphs of the English and the German page that have the same number."""

from collections.abc import Iterable

from lxml import etree

from debian.text import Pair, decode, plain

TEXT = ("p", "h1", "h2", "h3", "h4", "h5", "h6")
NUMBERED = ("par_", "hd_")
NO_TEXT = {"script", "style"}


def _texts(element: etree._Element) -> Iterable[str]:
    """What a reader sees, with the variant of a text that is for no system in particular."""
    if not _is_seen(element):
        return
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str):
            yield from _texts(child)
        yield child.tail or ""


def _is_seen(element: etree._Element) -> bool:
    # Variants for systems and modules are all hidden until a script shows one: MAC..., WRITER...,
    # default....
    is_variant = element.get("hidden") is not None
    return element.tag not in NO_TEXT and (
        not is_variant or element.get("id", "").startswith("default")
    )


def paragraphs(page: str) -> dict[str, str]:
    """Number -> text.

    Raises:
        ValueError: the page is empty.
    """
    root = etree.fromstring(page.encode(), etree.HTMLParser(encoding="utf-8"))
    if root is None:
        raise ValueError("the page is empty")
    found: dict[str, str] = {}
    for element in root.iter(*TEXT):
        number = element.get("id", "")
        text = plain("".join(_texts(element)))
        if number.startswith(NUMBERED) and text:
            found.setdefault(number, text)
    return found


def read_libreoffice(english: bytes, german: bytes) -> list[Pair]:
    """Paragraphs of two pages that belong together.

    Raises:
        ValueError, SyntaxError: one is not text, or empty.
    """
    sides = [paragraphs(decode(raw)) for raw in (english, german)]
    return [(text, sides[1][number]) for number, text in sides[0].items() if number in sides[1]]
