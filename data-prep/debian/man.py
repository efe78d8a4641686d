"""Man pages: paragraphs of both languages' troff, without commands, fonts, tables and code."""

# ruff: noqa: RUF001 - typographic characters are what the names stand for

import gzip
import re
import shlex

from debian.align import Block, align
from debian.text import Pair, decode, plain

COMMENT = re.compile(r"[.'][ \t]*\\?[\"#]|'''")
REQUEST = re.compile(r"[.'][ \t]*([A-Za-z]+)[ \t]*(.*)")
CONDITION = re.compile(r"\.\s*(?:ie|if) n ")
PARAGRAPHS = {"PP", "P", "LP", "HP", "RS", "RE", "sp", "Sp", "TH", "UN", "br", "in"}
CODE_BEGINS, CODE_ENDS = (
    {"nf", "EX", "TS", "Vb", "EQ", "SY", "de", "ig"},
    {"fi", "EE", "TE", "Ve", "EN", "YS", "."},
)
SPACED, JOINED = {"B", "I", "SM", "SB", "CW", "R"}, {"BR", "IR", "RB", "RI", "BI", "IB"}
MIN_TERM = 3  # characters; a shorter tag of .IP is a bullet or a number

ESCAPES = re.compile(
    r"""\\(?:
    ["\#].*                                             # comment
    | f(?:\[[^\]]*\]|\(..|.)                            # font
    | [hvwsmMFLlDbo](?:'[^']*'|\[[^\]]*\]|[+-]?\d{1,2}) # motion, size, colour, drawing
    | \*?\((?P<two>..) | \*?\[(?P<long>[^\]]*)\]        # named character, or string
    | \*(?P<string>.)
    | (?P<one>.)
    )?""",
    re.X,
)
ONE = {"-": "-", " ": " ", "~": " ", "0": " ", "e": "\\", "\\": "\\", ".": ".", "'": "'", "`": "`"}
ONE |= dict.fromkeys("&|^/,%:c)!?{}dupz", "")
# Name and character, in turn.
_NAMED = """
    aq ' dq " cq ’ oq ‘ lq “ rq ” em — en – hy - mi - :a ä :o ö :u ü :A Ä :O Ö :U Ü ss ß sz ß 'e é
    `a à Bq „ bq ‚ Fo « Fc » fo ‹ fc › bu • co © rg ® tm ™ ha ^ ti ~ rs \\ ga ` la < ra > lB [ rB ]
    lC { rC } at @ sh # Do $ Eu € Po £ or | ba | sl / ** * pl + eq = <= ≤ >= ≥ != ≠ +- ± mu × -> →
    <- ← de ° mc µ sc § ... … R ® Tm ™ 'a á ^e ê C+ C++ -- — Aq '
"""
NAMED = dict(zip(_NAMED.split()[::2], _NAMED.split()[1::2], strict=True))
CODE_POINT = re.compile(r"u([0-9A-F]{4,6})")


def unescape(text: str) -> str:
    """A line of troff as plain text: characters for their names, and neither fonts nor motions."""
    return ESCAPES.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    if name := match["two"] or match["long"]:
        if point := CODE_POINT.fullmatch(name):
            return chr(int(point[1], 16))
        return NAMED.get(name, "")
    if string := match["string"]:
        return "'" if string in "Aq" else ""
    return ONE.get(one, one) if (one := match["one"]) else ""


def words(arguments: str) -> list[str]:
    """The arguments of a request; quotes hold together what has spaces."""
    lexer = shlex.shlex(arguments, posix=True)
    lexer.whitespace, lexer.quotes, lexer.escape, lexer.commenters = " \t", '"', "", ""
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quote that is not closed ends with the line
        return [word.strip('"') for word in arguments.split()]


class Page:
    """The blocks of a page while it is read line by line."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._kind = "p"
        self._lines: list[str] = []
        self._code = 0  # how deep in what is not text
        self._term_follows = False
        self._started = False

    def end_block(self, kind: str = "p") -> None:
        """What came is a block, where it is any; the next one is of ``kind``."""
        if text := plain(unescape(" ".join(self._lines))):
            self.blocks.append((self._kind, text))
        self._lines, self._kind = [], kind

    def read(self, line: str) -> None:
        """Take the next line."""
        line = CONDITION.sub("", line)
        if COMMENT.match(line):
            return
        if request := REQUEST.match(line):
            self._request(request[1], request[2])
        elif line.startswith(".."):
            self._code = max(0, self._code - 1)
        elif not self._started or self._code or line.startswith("."):
            return
        elif not line.strip():
            self.end_block()
        else:
            self._text(line)

    def _text(self, line: str) -> None:
        self._lines.append(line)
        if self._term_follows:
            self.end_block("definition")
            self._term_follows = False

    def _request(self, name: str, arguments: str) -> None:
        if name in ("SH", "SS"):
            self._heading(name, arguments)
        elif name in CODE_BEGINS:
            self.end_block()
            self._code += 1
        elif name in CODE_ENDS:
            self._code = max(0, self._code - 1)
        elif self._started and not self._code:
            self._in_text(name, arguments)

    def _heading(self, name: str, arguments: str) -> None:
        self._code = 0
        self._started = True
        self.end_block(name)
        self._lines = [" ".join(words(arguments))]
        self.end_block()

    def _in_text(self, name: str, arguments: str) -> None:
        if name in ("TP", "TQ"):
            self.end_block("term")
            self._term_follows = True
        elif name == "IP":
            self.end_block("term")
            self._lines = [word for word in words(arguments)[:1] if len(word) > MIN_TERM]
            self.end_block("definition")
        elif name in PARAGRAPHS:
            self.end_block()
            self._term_follows = False
        elif name in SPACED:
            self._text(" ".join(words(arguments)))
        elif name in JOINED:
            self._text("".join(words(arguments)))
        elif name == "MR":
            page, section, *rest = [*words(arguments), "", ""]
            self._text(f"{page}({section}){''.join(rest)}")
        elif name in ("UE", "ME") and self._lines:
            self._lines[-1] += arguments


def blocks(page: str) -> list[Block]:
    """The paragraphs, headings and terms of a page.

    None of a page that only names another (``.so``), nor of one with BSD's macros (mdoc), which
    mark words, not text: neither has a heading (``.SH``).
    """
    reader = Page()
    for line in page.split("\n"):
        reader.read(line)
    reader.end_block()
    return reader.blocks


def read_man(english: bytes, german: bytes) -> list[Pair]:
    """Paragraphs of two compressed man pages that belong together.

    Raises:
        ValueError, EOFError, OSError, zlib.error: one cannot be read.
    """
    return align(*(blocks(decode(gzip.decompress(raw))) for raw in (english, german)))
