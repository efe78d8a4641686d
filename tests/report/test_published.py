"""The published numbers agree: PRR and PEoP recomputed, against every cell that is printed."""

from __future__ import annotations

import pytest

from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.report.published import BERT_BASE, SCORES, TRANSLATION, peop, prr, published

# Xue & Aletras 2023: GLUE, SuperGLUE, SQuAD1.1, SQuAD2.0.
PRR = {
    "sha": (96.7, 95.1, 93.1, 87.8),
    "mha": (100, 100, 100, 100),
    "el": (98.0, 98.5, 97.6, 93.8),
    "mqa": (99.2, 98.2, 97.9, 97.2),
    "skv": (99.4, 99.1, 99.4, 98.6),
    "mhe_add": (98.2, 97.9, 94.5, 93.2),
    "mhe_mul": (98.3, 98.7, 97.0, 93.9),
}
PEOP = {
    "mha": (0.02, 0.02, 0.03, 0.06),
    "el": (0.02, 0.06, 0.08, 0.11),
    "mqa": (0.04, 0.04, 0.07, 0.15),
    "skv": (0.02, 0.03, 0.05, 0.09),
    "mhe_add": (4.92, 9.44, 4.65, 19.88),
    "mhe_mul": (5.53, 12.07, 13.19, 22.25),
}
SCORE_ROUNDING, PRR_ROUNDING, PEOP_ROUNDING = 0.05, 0.05, 0.005


@pytest.fixture(scope="module")
def parameters() -> dict[str, int]:
    """Attention parameters, counted in modules."""
    models = {kind: build_on_meta("roberta_mhe_base", kind) for kind in BERT_BASE}
    return {kind: attention_parameters(model) for kind, model in models.items()}


@pytest.mark.parametrize("task", range(4))
def test_one_set_of_scores_explains_all_cells_of_a_task(
    task: int, parameters: dict[str, int]
) -> None:
    """PRR and PEoP follow from the same unrounded scores of mha and sha."""
    scores = list(SCORES.values())[task]
    assert set(PRR) == set(scores) == {*PEOP, "sha"}
    steps = [step / 200 - SCORE_ROUNDING for step in range(21)]
    possible = [(scores["mha"] + up, scores["sha"] + right) for up in steps for right in steps]
    assert any(explained(task, mha, sha, parameters) for mha, sha in possible)


def explained(task: int, mha: float, sha: float, parameters: dict[str, int]) -> bool:
    """Whether each kind has a score that rounds to the published one and gives its PRR and PEoP."""
    for kind, cells in PRR.items():
        printed = list(SCORES.values())[task][kind]
        around = (printed - SCORE_ROUNDING, printed + SCORE_ROUNDING)
        low, high = {"mha": (mha, mha), "sha": (sha, sha)}.get(kind, around)
        low = max(low, (cells[task] - PRR_ROUNDING) * mha / 100)
        high = min(high, (cells[task] + PRR_ROUNDING) * mha / 100)
        if kind in PEOP:
            more = parameters[kind] / parameters["sha"] - 1
            low = max(low, sha * (1 + (PEOP[kind][task] - PEOP_ROUNDING) * more))
            high = min(high, sha * (1 + (PEOP[kind][task] + PEOP_ROUNDING) * more))
        if low > high + 1e-9:
            return False
    return True


def test_the_formulas() -> None:
    assert prr(20, 25) == 80
    assert peop(110, 100, 150, 100) == pytest.approx(0.1 / 0.5)


def test_the_published_prr_follows_from_the_published_bleu() -> None:
    """Within the rounding of BLEU's one decimal; the rows are those of the parameters' table."""
    assert set(TRANSLATION) == set(ROWS)
    for row in ROWS:
        mha, mhe = published(row, "mha"), published(row, "mhe_mul")
        assert mha is not None
        assert mhe is not None
        most, least = (100 * (mhe.bleu + by) / (mha.bleu - by) for by in (0.05, -0.05))
        assert least - 0.05 <= mhe.prr <= most + 0.05, row
        assert mha.prr == 100


def test_what_the_paper_does_not_have_is_none() -> None:
    assert published("base", "mqa") is None
    assert published("tiny", "mha") is None
    assert published("8l", "mhe_mul") == ("8.69", 24.3, 96.0)
