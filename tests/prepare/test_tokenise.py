"""Tokenising and detokenising follow Moses' rules for the language, without XML escapes."""

import pytest

from fairseq_mhe.prepare import tokenise
from fairseq_mhe.prepare.languages import restored_by_moses
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser


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
        ("zh_CN", "他说：你好，世界！"),  # noqa: RUF001
    ],
)
def test_restored_by_moses_agrees_with_sacremoses(lang: str, line: str) -> None:
    back = detokeniser("moses", lang)(tokeniser("moses", lang)(line))
    assert restored_by_moses(lang) == (back == line)


@pytest.mark.parametrize(
    ("lang", "line", "unified"),
    [
        ("de", "„So“ \u2013 sagt\u2019s ( er ) : 5 %…", '"So" - sagt\'s (er): 5%...'),
        ("en", "soft\u00adhyphen, zero\u200bwidth", "softhyphen, zerowidth"),
    ],
)
def test_punctuation_is_unified(lang: str, line: str, unified: str) -> None:
    assert tokenise.punctuation_normaliser(lang)(line) == unified
