"""Every common form of a language code means the same language."""

import pytest

from fairseq_mhe.prepare import languages
from fairseq_mhe.prepare.languages import base_code, bleu_tokeniser_of, restored_by_moses


@pytest.mark.parametrize(
    ("base", "codes"),
    [
        ("zh", "zh zho chi cmn ZH zh-CN zh_TW zh-Hans zho_Hans zho_Hant cmn_Hans"),
        ("en", "en eng EN eng_Latn eng-US en_GB en_XX"),
        ("de", "de deu ger deu_Latn de-CH DE_de"),
        ("my", "my mya bur mya_Mymr my_MM"),
    ],
)
def test_every_form_of_a_code_is_one_language(base: str, codes: str) -> None:
    expected = (languages.has_spaces(base), restored_by_moses(base), bleu_tokeniser_of(base))
    for code in codes.split():
        assert base_code(code) == base
        facts = (languages.has_spaces(code), restored_by_moses(code), bleu_tokeniser_of(code))
        assert facts == expected


@pytest.mark.parametrize(
    ("tokeniser", "codes"),
    [
        ("zh", "zh yue lzh wuu nan hak yue_Hant zh_Hant"),
        ("ja-mecab", "ja jpn ja_Hira"),
        ("ko-mecab", "ko kor kor_Hang"),
        ("char", "th tha lo lao km khm_Khmr my mya bo bod dz dzo shn_Mymr"),
        ("13a", "en de vi nan_Latn ja_Latn ka am hi ur ar tr src unknown9 x"),
    ],
)
def test_the_script_decides_how_bleu_splits_words(tokeniser: str, codes: str) -> None:
    for code in codes.split():
        assert bleu_tokeniser_of(code) == tokeniser
        assert languages.has_spaces(code) == (tokeniser in ("ko-mecab", "13a"))
