"""Parallel text of any length that behaves like real text, made from the embedded corpus; to measure speed with.

Sentences are the corpus' own, joined to the length of those in news and parliament. What makes real
text slow is its vocabulary, which goes on growing: a part of the words is exchanged for made-up
ones, the front of one word with the end of another, drawn so that a few come often and most once.
The same number of pairs is always the same text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from fairseq_mhe.prepare.corpora.home_assistant import CORPUS, read_corpus

SENTENCES = (2, 3, 4, 5, 6)  # of the corpus, in one line
MADE_UP = 0.04  # of the words
TAIL = (
    0.15  # of the power law that made-up words are drawn by; the smaller, the more different words
)
DECORATED = 0.25  # of the lines
DECORATIONS = (
    ("\u201c{}\u201d", "\u201e{}\u201c"),
    ("({})", "({})"),
    ("{} \u2013 1,000 %", "{} \u2013 1.000 %"),
    ("It\u2019s '{}'", "Es ist '{}'"),
    ('"{}," e.g.', '"{}", z.B.'),
)
_HALF = 2


class MadeUpWords:
    """Words that nobody has written: as many as there are pairs of a front and an end."""

    def __init__(self, lines: list[str]) -> None:
        """``lines`` give fronts and ends."""
        words = sorted(
            {
                word
                for line in lines
                for word in line.split()
                if word.isalpha() and len(word) > _HALF
            }
        )
        self._fronts = sorted({word[: (len(word) + 1) // 2] for word in words})
        self._ends = sorted({word[(len(word) + 1) // 2 :] for word in words})

    def draw(self, random: Random) -> str:
        """One of them, the first ones often."""
        number = int((1.0 - random.random()) ** (-1.0 / TAIL)) % (
            len(self._fronts) * len(self._ends)
        )
        return self._fronts[number % len(self._fronts)] + self._ends[number // len(self._fronts)]


def synthetic_pairs(count: int) -> Iterator[tuple[str, str]]:
    """``count`` pairs, English and German."""
    pairs = read_corpus(CORPUS)["train"]
    made_up = [MadeUpWords([pair[side] for pair in pairs]) for side in (0, 1)]
    random = Random(1)  # noqa: S311  # no secret
    for _ in range(count):
        sentences = SENTENCES[int(random.random() * len(SENTENCES))]
        some = [pairs[int(random.random() * len(pairs))] for _ in range(sentences)]
        sides = [
            _with_made_up(" ".join(pair[side] for pair in some), made_up[side], random)
            for side in (0, 1)
        ]
        if random.random() < DECORATED:
            forms = DECORATIONS[int(random.random() * len(DECORATIONS))]
            sides = [form.format(side) for form, side in zip(forms, sides, strict=True)]
        yield sides[0], sides[1]


def _with_made_up(line: str, made_up: MadeUpWords, random: Random) -> str:
    words = line.split()
    places = [place for place in range(len(words)) if random.random() < MADE_UP]
    for place in places:
        words[place] = made_up.draw(random)
    return " ".join(words)


def write_corpus(prefix: Path, count: int) -> None:
    """Write ``count`` pairs to PREFIX.en and PREFIX.de."""
    with (
        Path(f"{prefix}.en").open("w", encoding="utf-8") as source,
        Path(f"{prefix}.de").open("w", encoding="utf-8") as target,
    ):
        for english, german in synthetic_pairs(count):
            source.write(f"{english}\n")
            target.write(f"{german}\n")
