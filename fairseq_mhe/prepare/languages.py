"""Facts about languages by code: ISO 639 (zh, zho), BCP 47 (zh-Hans), FLORES, NTREX (zho_Hans)."""

from functools import cache

from langcodes import Language, LanguageTagError

from fairseq_mhe.common.files import yaml_beside

_FACTS = yaml_beside(__file__, "languages.yaml")


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
    return bleu_tokeniser_of(code) not in _FACTS["without_spaces"]


def characters_per_token(code: str) -> int:
    """Return how many characters of a language count as a token; few tokens are longer.

    250 tokens without spaces are at most 1,000 subwords, which fairseq's 1,024 positions hold.
    """
    return 8 if has_spaces(code) else 4


def restored_by_moses(code: str) -> bool:
    """Whether Moses' detokeniser restores tokenised text of a language, up to rare cases."""
    if not has_spaces(code) or script_of(code) in _FACTS["scripts_not_restored"]:
        return False
    return base_code(code) not in _FACTS["languages_not_restored"]


def bleu_tokeniser_of(code: str) -> str:
    """Return the sacreBLEU tokeniser that splits text of a language into words or characters."""
    tokeniser: str = _FACTS["bleu_tokenisers"].get(script_of(code), "13a")
    return tokeniser
