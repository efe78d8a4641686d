"""Languages by their codes: ISO 639 (zh, zho), BCP 47 (zh-Hans), FLORES and NTREX (zho_Hans)."""

from functools import cache

from langcodes import Language, LanguageTagError

_HAN = frozenset(("Hani", "Hans", "Hant"))
_KANA = frozenset(("Hira", "Hrkt", "Jpan", "Kana"))
_HANGUL = frozenset(("Hang", "Kore"))
#: Burmese, Khmer, Lao, Thai, Tibetan.
_UNSPACED = frozenset(("Khmr", "Laoo", "Mymr", "Thai", "Tibt"))
# Text that Moses' detokeniser does not restore: under 98 BLEU of up to 300 sentences of Django's
# catalogues (Korean, and others of the same scripts, by single sentences). Scripts have other
# commas and full stops; languages the danda, joiners inside words, or apostrophes.
_SCRIPTS_NOT_RESTORED = frozenset(("Arab", "Armn", "Ethi", *_HANGUL))
_LANGUAGES_NOT_RESTORED = frozenset(
    (
        *("as", "bn", "hi", "ml", "ne", "or", "pa", "si"),
        *("ast", "be", "br", "ca", "cy", "ga", "gd", "ig", "sq", "uk", "uz"),
    )
)


@cache
def _language(code: str) -> Language:
    """The language of a code; unknown codes are taken for languages in Latin script."""
    try:
        return Language.get(code)
    except LanguageTagError:
        return Language.make(language=code)


def is_known(code: str) -> bool:
    """Whether the standards list a code."""
    return bool(_language(code).is_valid())


@cache
def base_code(code: str) -> str:
    """The shortest code of a language without script and country: zh of zho_Hans, cmn and ZH."""
    language: str | None = _language(code).prefer_macrolanguage().language
    return language or code


@cache
def script_of(code: str) -> str:
    """The script (ISO 15924) that a code names, or the usual one of its language."""
    script: str | None = _language(code).maximize().script
    return script or "Latn"


def has_spaces(code: str) -> bool:
    """Whether a language has spaces between its words."""
    return script_of(code) not in _HAN | _KANA | _UNSPACED


def restored_by_moses(code: str) -> bool:
    """Whether Moses' detokeniser gives text of a language back, but for rare cases."""
    restored = script_of(code) not in _SCRIPTS_NOT_RESTORED
    return (
        has_spaces(code) and restored and base_code(code) not in _LANGUAGES_NOT_RESTORED
    )


def bleu_tokeniser_of(code: str) -> str:
    """The tokeniser of sacreBLEU that finds the words, or characters, of a language."""
    script = script_of(code)
    if script in _HAN:
        return "zh"
    if script in _KANA:
        return "ja-mecab"
    if script in _HANGUL:
        return "ko-mecab"
    return "char" if script in _UNSPACED else "13a"
