"""Tokenising and detokenising follow Moses' rules for the language."""

import pytest

from fairseq_mhe.prepare.languages import restored_by_moses
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser


@pytest.mark.parametrize(
    ("name", "code", "line", "tokens"),
    [
        # "bzw." is an abbreviation only in German.
        ("moses", "de", "Haus bzw. Hof.", "Haus bzw. Hof ."),
        ("moses", "en_GB", "Haus bzw. Hof.", "Haus bzw . Hof ."),
        ("moses", "en", 'It\'s "well-known".', 'It \'s " well-known " .'),
        *[("moses", code, "L'homme d'ici.", "L' homme d' ici .") for code in ("fr", "fra_Latn")],
        ("moses-escaped", "FR-ca", "L'homme.", "L&apos; homme ."),
    ],
)
def test_moses_rules_depend_on_the_language_not_on_the_region(
    name: str, code: str, line: str, tokens: str
) -> None:
    assert tokeniser(name, code)(line) == tokens
    assert detokeniser(name, code)(tokens) == line


@pytest.mark.parametrize(
    ("lang", "line"),
    [
        ("am", "ሰላም፣ እንዴት ነህ።"),
        ("ar", "مرحبا، كيف حالك؟"),
        ("de", "Wie geht es? Gut, danke (sehr)."),
        ("fr_CA", "L'eau n'est pas froide, merci."),
        ("hi", "यह एक घर है। मैं वहाँ जाता हूँ।"),
        ("ko", "서울(Seoul)에서 안녕이라고 했다."),
        ("th", "สวัสดีครับ อยู่ที่ไหน"),
        ("uk", "Об'єкт здоров'я, п'ять."),  # noqa: RUF001
    ],
)
def test_restored_by_moses_agrees_with_sacremoses(lang: str, line: str) -> None:
    back = detokeniser("moses", lang)(tokeniser("moses", lang)(line))
    assert restored_by_moses(lang) == (back == line)


def test_punctuation_is_unified_and_case_lowered_after_the_tokeniser() -> None:
    spec = TextProcessing("en", "de", "moses", "bpe", punctuation=True)
    german = spec.tokens(["„So“ \u2013 sagt\u2019s ( er ) : 5 %…", "gut"], 1)
    assert german == ['" So " - sagt \' s ( er ) : 5 % ...', "gut"]
    assert spec.tokens(["soft\u00adhyphen, zero\u200bwidth"], 0) == ["softhyphen , zerowidth"]
    lower = TextProcessing("en", "de", "moses", "bpe", lowercase=True)
    assert lower.tokens(["Mr. X \u2013 No."], 0) == ["mr. x \u2013 no ."]
