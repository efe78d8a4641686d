"""Facts about languages by code: ISO 639 (zh, zho), BCP 47 (zh-Hans), FLORES, NTREX (zho_Hans)."""

from functools import cache

from langcodes import Language, LanguageTagError

_HAN = frozenset(("Hani", "Hans", "Hant"))
_KANA = frozenset(("Hira", "Hrkt", "Jpan", "Kana"))
_HANGUL = frozenset(("Hang", "Kore"))
#: Scripts of Khmer, Lao, Burmese, Thai and Tibetan, which write no spaces between words.
_UNSPACED = frozenset(("Khmr", "Laoo", "Mymr", "Thai", "Tibt"))
# Moses' detokeniser does not restore text of these scripts and languages: up to 300 sentences of
# Django's catalogues have under 98 BLEU. Single sentences decided on Korean and on other languages
# of the same scripts, which have other commas and full stops than Moses' rules.
_SCRIPTS_NOT_RESTORED = frozenset(("Arab", "Armn", "Ethi", *_HANGUL))
_WITH_DANDA_OR_JOINERS = ("as", "bn", "hi", "ml", "ne", "or", "pa", "si")
_WITH_APOSTROPHES = ("ast", "be", "br", "ca", "cy", "ga", "gd", "ig", "sq", "uk", "uz")
_LANGUAGES_NOT_RESTORED = frozenset(_WITH_DANDA_OR_JOINERS + _WITH_APOSTROPHES)


@cache
def _language(code: str) -> Language:
    """Return the language of a code; an unknown code counts as a language in Latin script."""
    try:
        return Language.get(code)
    except LanguageTagError:
        return Language.make(language=code)


def is_known(code: str) -> bool:
    """Whether the standards list the code."""
    return bool(_language(code).is_valid())


@cache
def base_code(code: str) -> str:
    """Return the shortest code, without script and country: zh for zho_Hans, cmn and ZH."""
    language: str | None = _language(code).prefer_macrolanguage().language
    return language or code


@cache
def script_of(code: str) -> str:
    """Return the script (ISO 15924) that a code names, or else its language's usual script."""
    script: str | None = _language(code).maximize().script
    return script or "Latn"


def has_spaces(code: str) -> bool:
    """Whether a language is written with spaces between words."""
    return script_of(code) not in _HAN | _KANA | _UNSPACED


def restored_by_moses(code: str) -> bool:
    """Whether Moses' detokeniser restores tokenised text of a language, up to rare cases."""
    if not has_spaces(code) or script_of(code) in _SCRIPTS_NOT_RESTORED:
        return False
    return base_code(code) not in _LANGUAGES_NOT_RESTORED


def bleu_tokeniser_of(code: str) -> str:
    """Return the sacreBLEU tokeniser that splits text of a language into words or characters."""
    script = script_of(code)
    if script in _HAN:
        return "zh"
    if script in _KANA:
        return "ja-mecab"
    if script in _HANGUL:
        return "ko-mecab"
    return "char" if script in _UNSPACED else "13a"
