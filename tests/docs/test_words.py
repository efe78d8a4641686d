"""README and docs stay short: words in all, words of a sentence, and words that hide an actor."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
MOST_WORDS, LONGEST_SENTENCE = 14_000, 30
LISTED = re.compile(r"\b(told|whose|gone on|of its own|as it is|the ones|those that|so many)\b")


def sentences(page: Path) -> list[str]:
    """The prose of a page, without code, tables, headings and links' addresses."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$|\$\$.*?\$\$|<!--.*?-->", "", text, flags=re.M | re.S)
    text = re.sub(r"^( {4}|\||#|!\[).*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)|\*\*|`", "", text)
    return re.split(r"(?<=[.:;?!])\s+|\n\s*\n|\n\s*[-*\d]+\.? ", text)


def test_all_pages_together() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES) <= MOST_WORDS
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_plain_sentences(page: Path) -> None:
    for sentence in sentences(page):
        assert len(sentence.split()) <= LONGEST_SENTENCE, sentence
        assert not LISTED.search(sentence), sentence
