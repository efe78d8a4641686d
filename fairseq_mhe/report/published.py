"""What the paper (Xue & Aletras 2023) prints, in published.yaml, and its two figures of merit."""

from typing import Any

from fairseq_mhe.common.files import yaml_beside

_PRINTED = yaml_beside(__file__, "published.yaml")
#: Row -> kind -> parameters of attention in millions, BLEU, and BLEU in percent of MHA's.
TRANSLATION: dict[str, dict[str, tuple[str, float, float]]] = _PRINTED["translation"]
#: Kind -> parameters of attention in BERT-base's size, in millions.
BERT_BASE: dict[str, str] = _PRINTED["bert_base"]
#: Benchmark -> kind -> score, PRR and PEoP (not of sha).
LANGUAGE_MODELS: dict[str, dict[str, list[float]]] = _PRINTED["language_models"]


def published(row: str, kind: str) -> dict[str, Any]:
    """The paper's parameters, BLEU and PRR of a row and kind; None of each where it has none."""
    printed = TRANSLATION.get(row, {}).get(kind, (None, None, None))
    names = ("paper_parameters", "paper_bleu", "paper_prr")
    return dict(zip(names, printed, strict=True))


def prr(score: float, mha_score: float) -> float:
    """Performance retention ratio, in percent: what is left of multi-head attention's score."""
    return 100 * score / mha_score


def peop(score: float, sha_score: float, parameters: int, sha_parameters: int) -> float:
    """Performance elasticity of parameters: relative gain of score over sha's by that of size."""
    return (score / sha_score - 1) / (parameters / sha_parameters - 1)
