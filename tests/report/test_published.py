"""The published numbers agree with each other."""

from fairseq_mhe.models.architectures import PAPER_ROWS
from fairseq_mhe.report.published import BERT_BASE, LANGUAGE_MODELS, TRANSLATION, published


def test_the_published_prr_follows_from_the_published_scores() -> None:
    """Within the rounding of the scores to one decimal."""
    assert set(TRANSLATION) == set(PAPER_ROWS)
    for row in PAPER_ROWS:
        mha, mhe = published(row, "mha"), published(row, "mhe_mul")
        follows(mhe["paper_prr"], mhe["paper_bleu"], mha["paper_bleu"])
        assert mha["paper_prr"] == 100
    for printed in LANGUAGE_MODELS.values():
        assert set(printed) == set(BERT_BASE)
        for score, prr, *_ in printed.values():
            follows(prr, score, printed["mha"][0])


def follows(prr: float, score: float, of_mha: float) -> None:
    most, least = (100 * (score + by) / (of_mha - by) for by in (0.05, -0.05))
    assert least - 0.05 <= prr <= most + 0.05
