"""The rules for a tokenizer.json give the same tokens and the same text as sacremoses."""

import random

import pytest
import tokenizers

from fairseq_mhe.deploy.moses_rules import Rule, detokenising, tokenising
from fairseq_mhe.prepare.text_processing import normalise
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser
from tests.fixtures.refusals import refuses
from tests.fixtures.text import Pairs

LANGUAGES = ("en", "de", "fr_CA", "it", "ru")
#: Characters that the rules treat, and neighbours for them.
CHARACTERS = "abZs'' ,,..5é\"!(?`-…€$&<[|;本😀"
WORDS = (
    *"\"'`[($€5.,!?)„“:%本",
    *("das", "foo", "is", "yes", "'s", "l'", "d'", "n't"),
    *("日本語", "@-@", "..."),
)
HARD = [
    "rock'n'roll is 'n' it's dogs' a'b'c'd'e 5's",
    "No. 5 is no. 7, Mr. X, e.g. foo. bar i.e. x. p. 7",
    'He said "hi..." ... and, x,5 1,000 5,',
    "U.S. end.'",
    "'0' ''x'' 'tis ..' ,'",
]


def applied(rules: list[Rule], lines: list[str]) -> list[str]:
    replace = [tokenizers.normalizers.Replace(tokenizers.Regex(p), to) for p, to in rules]
    rule = tokenizers.normalizers.Sequence(replace)
    return [" ".join(rule.normalize_str(line).split(" ")) for line in lines]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_tokens_equal_those_of_sacremoses(lang: str, corpus: dict[str, Pairs]) -> None:
    rng = random.Random(7)
    drawn = ["".join(rng.choices(CHARACTERS, k=rng.randint(1, 25))) for _ in range(400)]
    side = 0 if lang == "en" else 1
    lines = [*HARD, *drawn, *(pair[side] for pair in corpus["test"][:200])]
    # sacremoses separates only every second of several commas in a row.
    lines = [line for line in map(normalise, lines) if line and ",," not in line]
    assert len(lines) > 400
    tokenise = tokeniser("moses", lang)
    expected = [tokenise(line).split() for line in lines]
    assert [line.split() for line in applied(tokenising(lang), lines)] == expected


@pytest.mark.parametrize("lang", LANGUAGES)
def test_joined_tokens_equal_the_text_of_sacremoses(lang: str, corpus: dict[str, Pairs]) -> None:
    rng = random.Random(7)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 14))) for _ in range(400)]
    tokenise, detokenise = tokeniser("moses", lang), detokeniser("moses", lang)
    lines += [tokenise(pair[1]) for pair in corpus["test"][:200]]
    expected = [detokenise(line) for line in lines]
    assert applied(detokenising(lang), lines) == expected


def test_czech_detokenising_is_refused() -> None:
    with refuses("detokeniser of cs"):
        detokenising("cs")
