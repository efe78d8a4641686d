"""A line that is longer than a model's positions, cut where sentences end; nothing is lost."""

import re
from collections.abc import Callable

#: Between two sentences: white space after a full stop, question or exclamation mark, with what
#: closes quotes and brackets; in Chinese and Japanese nothing is between.
_BETWEEN_SENTENCES = re.compile(
    r"(?<=[.!?\u2026])\s+|(?<=[.!?\u2026][\"')\]\u201c\u201d\u2019\u00bb])\s+|(?<=[\u3002\uff01\uff1f])"
)


def cut(line: str, fits: Callable[[str], bool]) -> list[str]:
    """``line`` in as few consecutive parts, ends of sentences between them, as each ``fits``.

    A sentence that does not fit alone is a part of its own.
    """
    parts: list[str] = []
    start = 0
    last = 0  # the end of the last sentence with which the part fits
    for end in [*(found.end() for found in _BETWEEN_SENTENCES.finditer(line)), len(line)]:
        if last > start and not fits(line[start:end]):
            parts.append(line[start:last].strip())
            start = last
        last = end
    parts.append(line[start:].strip())
    return [part for part in parts if part]
