"""Parallel text of any length that behaves like real text, made of the embedded corpus.

Sentences are the corpus' own, joined to the length of those in news and parliament. Real text is
slow by its vocabulary, which goes on growing: a part of the words is exchanged for made-up ones.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from fairseq_mhe.prepare.corpora.home_assistant import CORPUS, read_corpus

SENTENCES = (2, 3, 4, 5, 6)  # of the corpus, in one line
MADE_UP = 0.04  # of the words
TAIL = 0.15  # of the power law of made-up words; the smaller, the more different ones
DECORATED = 0.25  # of the lines
DECORATIONS = (
    ("\u201c{}\u201d", "\u201e{}\u201c"),
    ("({})", "({})"),
    ("{} \u2013 1,000 %", "{} \u2013 1.000 %"),
    ("It\u2019s '{}'", "Es ist '{}'"),
    ('"{}," e.g.', '"{}", z.B.'),
)


def synthetic_pairs(count: int) -> Iterator[tuple[str, str]]:
    """English and German, always the same; the vocabulary goes on growing, as real text's does."""
    pairs = read_corpus(CORPUS)["train"]
    random = Random(1)  # noqa: S311  # no secret
    draw = [_made_up_words([pair[side] for pair in pairs], random) for side in (0, 1)]
    for _ in range(count):
        sentences = SENTENCES[int(random.random() * len(SENTENCES))]
        some = [pairs[int(random.random() * len(pairs))] for _ in range(sentences)]
        sides = []
        for side in (0, 1):
            words = " ".join(pair[side] for pair in some).split()
            for place in [place for place in range(len(words)) if random.random() < MADE_UP]:
                words[place] = draw[side]()
            sides.append(" ".join(words))
        if random.random() < DECORATED:
            forms = DECORATIONS[int(random.random() * len(DECORATIONS))]
            sides = [form.format(side) for form, side in zip(forms, sides, strict=True)]
        yield sides[0], sides[1]


def _made_up_words(lines: list[str], random: Random) -> Callable[[], str]:
    """The front of one word with the end of another, drawn so that a few come often, most once."""
    words = {word for line in lines for word in line.split() if word.isalpha() and len(word) > 2}
    fronts = sorted({word[: (len(word) + 1) // 2] for word in words})
    ends = sorted({word[(len(word) + 1) // 2 :] for word in words})

    def draw() -> str:
        number = int((1.0 - random.random()) ** (-1.0 / TAIL)) % (len(fronts) * len(ends))
        return fronts[number % len(fronts)] + ends[number // len(fronts)]

    return draw


def write_corpus(prefix: Path, count: int) -> None:
    """Write ``count`` pairs to PREFIX.en and PREFIX.de."""
    english, german = (Path(f"{prefix}.{lang}") for lang in ("en", "de"))
    with (
        english.open("w", encoding="utf-8") as source,
        german.open("w", encoding="utf-8") as target,
    ):
        for pair in synthetic_pairs(count):
            source.write(f"{pair[0]}\n")
            target.write(f"{pair[1]}\n")
