"""Blocks of text in two languages that belong together, by order, kind and lengths."""

import re
from collections.abc import Sequence

from debian.text import Pair

Block = tuple[str, str]  # its kind (title, term, p, ...) and its text

GAP = 1.6  # what it costs to leave a block without a partner
MOST = 1.5  # a pair that costs more is not kept
OTHER_KIND = 3.0
OTHER_NUMBERS = 0.7
LENGTHS = 4.0
MOSTLY = 0.8  # of the blocks of documents with the same structure
HALF = 0.5  # of the blocks of the shorter document
BAND = 60  # how far from the diagonal partners may be, beyond the difference in numbers
MAX_CELLS = 6_000_000
NUMBER = re.compile(r"\d+")


def align(english: Sequence[Block], german: Sequence[Block]) -> list[Pair]:
    """The texts of blocks that belong together.

    Where both sides have the same kinds in the same order, and most lengths fit, that is each block
    with its like. Else the cheapest way through both (Gale and Church 1993, with kinds and numbers
    as anchors, one to one only). Nothing of documents of which less than half can be aligned: their
    structures differ, and what fits may do so by chance.
    """
    prices = Prices(english, german)
    if [kind for kind, _ in english] == [kind for kind, _ in german]:
        fitting = sum(prices.of(number, number) < MOST for number in range(len(english)))
        if fitting >= MOSTLY * len(english):
            return [(one[1], other[1]) for one, other in zip(english, german, strict=True)]
    if len(english) * len(german) > MAX_CELLS:
        return []
    found = _cheapest(prices)
    return found if len(found) >= HALF * min(len(english), len(german)) else []


class Prices:
    """How unlikely it is that two blocks belong together."""

    def __init__(self, english: Sequence[Block], german: Sequence[Block]) -> None:
        self.sides = (english, german)
        self._blocks = [
            [(kind, len(text), frozenset(NUMBER.findall(text))) for kind, text in side]
            for side in self.sides
        ]

    def of(self, i: int, j: int) -> float:
        """Of the i-th English and the j-th German block."""
        kind, length, numbers = self._blocks[0][i]
        other_kind, other_length, other_numbers = self._blocks[1][j]
        unlike = abs(length - other_length) / (length + other_length + 10) * LENGTHS
        return (
            unlike + OTHER_KIND * (kind != other_kind) + OTHER_NUMBERS * (numbers != other_numbers)
        )


def _cheapest(prices: Prices) -> list[Pair]:
    english, german = prices.sides
    rows, columns = len(english), len(german)
    band = abs(rows - columns) + BAND
    infinite = float("inf")
    # totals[i][j]: of the cheapest way to the first i English and j German blocks; steps: the last
    # step of it.
    totals: list[dict[int, float]] = [{-1: infinite}]
    steps: list[dict[int, tuple[int, int]]] = []
    for i in range(rows + 1):
        above = totals[-1]
        middle = i * columns // max(rows, 1)
        row: dict[int, float] = {}
        step: dict[int, tuple[int, int]] = {}
        left = infinite
        for j in range(max(0, middle - band), min(columns, middle + band) + 1):
            best, way = (0.0, (0, 0)) if i == j == 0 else (above.get(j, infinite) + GAP, (1, 0))
            if left + GAP < best:
                best, way = left + GAP, (0, 1)
            diagonal = above.get(j - 1, infinite)
            if diagonal < best:
                together = diagonal + prices.of(i - 1, j - 1)
                if together <= best:
                    best, way = together, (1, 1)
            row[j] = left = best
            step[j] = way
        totals.append(row)
        steps.append(step)
    return _partners(prices, steps)


def _partners(prices: Prices, steps: Sequence[dict[int, tuple[int, int]]]) -> list[Pair]:
    """The pairs on the way back from the last blocks, without those that cost too much."""
    i, j = (len(side) for side in prices.sides)
    found: list[Pair] = []
    while i or j:
        down, right = steps[i][j]
        if down and right and prices.of(i - 1, j - 1) < MOST:
            found.append((prices.sides[0][i - 1][1], prices.sides[1][j - 1][1]))
        i, j = i - down, j - right
    return found[::-1]
