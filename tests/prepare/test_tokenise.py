"""Tokenising and detokenising follow Moses' rules for the language, without XML escapes."""

from random import Random

import pytest
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from fairseq_mhe.prepare import tokenise
from fairseq_mhe.prepare.languages import restored_by_moses
from fairseq_mhe.prepare.tokenise import WordwiseMoses, detokeniser, tokeniser
from tests.fixtures.text import Pairs


def test_moses_rules_depend_on_the_language_not_on_the_region() -> None:
    # "bzw." is an abbreviation only in German; detokenising joins 's only in English.
    assert tokeniser("moses", "de")("Haus bzw. Hof").split() == ["Haus", "bzw.", "Hof"]
    assert tokeniser("moses", "en")("Haus bzw. Hof").split() != ["Haus", "bzw.", "Hof"]
    assert detokeniser("moses", "en")("It 's here .") == "It's here."
    for code in ("fr", "fra_Latn", "FR-ca"):
        assert tokeniser("moses", code)("L'homme d'ici.") == "L' homme d' ici ."
    assert tokeniser("moses-escaped", "fr_CA")("L'homme.") == "L&apos; homme ."
    assert detokeniser("moses", "fr_CA")("L' homme d' ici .") == "L'homme d'ici."


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("am", "ሰላም፣ እንዴት ነህ።"),
        ("ar", "مرحبا، كيف حالك؟"),
        ("bo", "བཀྲ་ཤིས་བདེ་ལེགས།"),
        ("ca", "L'aigua és bona. D'on ets?"),
        ("de", "Wie geht es? Gut, danke (sehr)."),
        ("el", "Τι κάνεις; Καλά, ευχαριστώ."),  # noqa: RUF001
        ("fr_CA", "L'eau n'est pas froide, merci."),
        ("hi", "यह एक घर है। मैं वहाँ जाता हूँ।"),
        ("ko", "서울(Seoul)에서 안녕이라고 했다."),
        ("ta", "நீங்கள் எப்படி இருக்கிறீர்கள்? நன்றி."),
        ("th", "สวัสดีครับ อยู่ที่ไหน"),
        ("uk", "Об'єкт здоров'я, п'ять."),  # noqa: RUF001
        ("vi", "Bạn khỏe không? Cảm ơn."),
    ],
)
def test_restored_by_moses_agrees_with_sacremoses(lang: str, line: str) -> None:
    back = detokeniser("moses", lang)(tokeniser("moses", lang)(line))
    assert restored_by_moses(lang) == (back == line)


NASTY = "".join([*"aZ5ß .,'`\"-()/&%:;„“…«»", "\u2019", "\u2013", "\u00a0", "\u200b", "\u00ad"])


@pytest.mark.parametrize("lang", ["en", "de", "fr", "fi"])
def test_tokens_by_word_equal_those_of_random_lines(lang: str) -> None:
    """The reference is sacremoses on whole lines, made of characters that its rules look at."""
    tokens = WordwiseMoses(lang)
    moses = MosesTokenizer(lang=lang)
    normalise = tokenise.punctuation_normaliser(lang)
    reference = MosesPunctNormalizer(lang=lang, post_remove_control_chars=True)
    random = Random(7)
    lines = []
    words = ["Mr.", "No.", "z.B.", "U.S.", "3", "x", " ", "'", ",", ".."]
    to_normalise = 'a5 .,"<%\u2018\u2019\u00a0)('
    for pieces in (NASTY, "a5,.' ", "ab'` ,.", words, ["DOTMULTI", ". "], to_normalise):
        for _ in range(150):
            line = "".join(random.choice(pieces) for _ in range(random.randint(0, 14)))
            assert tokens(line) == moses.tokenize(line, return_str=True, escape=False), line
            lines.append(line)
    assert normalise(lines) == list(map(reference.normalize, lines))


def test_tokens_by_word_equal_those_of_the_corpus(corpus: dict[str, Pairs]) -> None:
    for side, lang in enumerate(("en", "de")):
        tokens, moses = WordwiseMoses(lang), MosesTokenizer(lang=lang)
        odd = ["", " ", "\x07", "a\x07b\x00 ' '", "  a  '  '5 ", "x.'", "it's '", "No. 5"]
        for line in [*odd, *(pair[side] for pair in corpus["test"][:600])]:
            assert tokens(line) == moses.tokenize(line, return_str=True, escape=False)


def test_a_full_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Mr. Smith, z.B. U.S. and so on (etc.)."
    expected = WordwiseMoses("en").whole_line(line)
    monkeypatch.setattr("fairseq_mhe.prepare.tokenise.CACHED_WORDS", 2)
    tokens = WordwiseMoses("en")
    assert [tokens(line) for _ in range(3)] == [expected] * 3


def test_punctuation_is_unified() -> None:
    german = ["„So“ \u2013 sagt\u2019s ( er ) : 5 %…", "gut"]
    assert tokenise.punctuation_normaliser("de")(german) == ['"So" - sagt\'s (er): 5%...', "gut"]
    english = tokenise.punctuation_normaliser("en")(["soft\u00adhyphen, zero\u200bwidth"])
    assert english == ["softhyphen, zerowidth"]
