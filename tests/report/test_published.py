"""The published numbers agree with each other: PRR and PEoP follow from the printed scores."""

import pytest

from fairseq_mhe.models.architectures import PAPER_ROWS
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.report.published import BERT_BASE, LANGUAGE_MODELS, TRANSLATION, published

SCORE_ROUNDING, PRR_ROUNDING, PEOP_ROUNDING = 0.05, 0.05, 0.005


@pytest.fixture(scope="module")
def parameters() -> dict[str, int]:
    """Kind -> attention parameters, counted in a built model."""
    models = {kind: build_on_meta("roberta_mhe_base", kind) for kind in BERT_BASE}
    return {kind: attention_parameters(model) for kind, model in models.items()}


@pytest.mark.parametrize("benchmark", LANGUAGE_MODELS)
def test_prr_and_peop_of_a_benchmark_follow_from_its_scores(
    benchmark: str, parameters: dict[str, int]
) -> None:
    """Some unrounded scores of mha and sha explain every cell: a mistyped cell would not fit."""
    printed = LANGUAGE_MODELS[benchmark]
    numbers = {kind: len(cells) for kind, cells in printed.items()}
    assert numbers == {**dict.fromkeys(BERT_BASE, 3), "sha": 2}
    steps = [step / 200 - SCORE_ROUNDING for step in range(21)]
    possible = [
        (printed["mha"][0] + up, printed["sha"][0] + right) for up in steps for right in steps
    ]
    assert any(explained(printed, mha, sha, parameters) for mha, sha in possible)


def explained(
    printed: dict[str, list[float]], mha: float, sha: float, parameters: dict[str, int]
) -> bool:
    """Return whether every kind has a score that rounds to the printed score, PRR and PEoP."""
    for kind, (score, of_mha, *merit) in printed.items():
        around = (score - SCORE_ROUNDING, score + SCORE_ROUNDING)
        low, high = {"mha": (mha, mha), "sha": (sha, sha)}.get(kind, around)
        low = max(low, (of_mha - PRR_ROUNDING) * mha / 100)
        high = min(high, (of_mha + PRR_ROUNDING) * mha / 100)
        for peop_ in merit:
            growth = parameters[kind] / parameters["sha"] - 1
            low = max(low, sha * (1 + (peop_ - PEOP_ROUNDING) * growth))
            high = min(high, sha * (1 + (peop_ + PEOP_ROUNDING) * growth))
        if low > high + 1e-9:
            return False
    return True


def test_the_published_prr_follows_from_the_published_bleu() -> None:
    """Within the rounding of BLEU to one decimal."""
    assert set(TRANSLATION) == set(PAPER_ROWS)
    for row in PAPER_ROWS:
        mha, mhe = published(row, "mha"), published(row, "mhe_mul")
        bleu, of_mha = mhe["paper_bleu"], mha["paper_bleu"]
        most, least = (100 * (bleu + by) / (of_mha - by) for by in (0.05, -0.05))
        assert least - 0.05 <= mhe["paper_prr"] <= most + 0.05, row
        assert mha["paper_prr"] == 100
