"""The numbers that the paper (Xue & Aletras 2023) prints, and its two measures, PRR and PEoP."""

from typing import Any

from fairseq_mhe.common.files import yaml_beside

_PRINTED = yaml_beside(__file__, "published.yaml")
#: Row -> kind -> attention parameters in millions, BLEU, and PRR (BLEU in percent of MHA's).
TRANSLATION = _PRINTED["translation"]
#: Kind -> attention parameters of a model of BERT-base's size, in millions.
BERT_BASE = _PRINTED["bert_base"]
#: Suite or task -> the paper's name of the benchmark, and how many tasks its score averages.
BENCHMARKS = _PRINTED["benchmarks"]
#: Benchmark -> kind -> score, PRR and PEoP; sha has no PEoP.
LANGUAGE_MODELS = _PRINTED["language_models"]


def published(row: str, kind: str) -> dict[str, Any]:
    """Return the paper's parameters, BLEU and PRR of a row and kind, each None if unpublished."""
    names = ("paper_parameters", "paper_bleu", "paper_prr")
    if kind not in TRANSLATION.get(row, {}):
        return dict.fromkeys(names)
    return dict(zip(names, TRANSLATION[row][kind], strict=True))


def prr(score: float, mha_score: float) -> float:
    """Return the performance retention ratio: the score in percent of multi-head attention's."""
    return 100 * score / mha_score


def peop(score: float, sha_score: float, parameters: int, sha_parameters: int) -> float:
    """Return the performance elasticity of parameters, relative to single-head attention (sha)."""
    return (score / sha_score - 1) / (parameters / sha_parameters - 1)
