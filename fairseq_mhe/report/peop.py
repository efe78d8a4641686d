"""The paper's two figures of merit, PRR and PEoP, and the published scores of its language models to apply them to."""

from __future__ import annotations

#: Tasks of the pre-trained models (Xue & Aletras 2023, results of the BERT-base setting), in the
#: table's order.
TASKS = ("GLUE", "SuperGLUE", "SQuAD1.1", "SQuAD2.0")
#: Published scores of each kind of attention, one a task.
PUBLISHED_SCORES = {
    "sha": (79.2, 67.1, 82.5, 67.6),
    "mha": (81.9, 70.5, 88.6, 77.0),
    "el": (80.3, 69.5, 86.5, 72.2),
    "mqa": (81.3, 69.3, 86.7, 74.8),
    "skv": (81.4, 69.9, 88.1, 75.9),
    "mhe_add": (80.4, 69.1, 83.7, 71.8),
    "mhe_mul": (80.6, 69.6, 85.9, 72.3),
}


def prr(score: float, mha_score: float) -> float:
    """Performance retention ratio, in percent: what is left of multi-head attention's score."""
    return 100 * score / mha_score


def peop(score: float, sha_score: float, parameters: int, sha_parameters: int) -> float:
    """Performance elasticity of parameters: relative gain over single-head attention's score for a relative gain of
    attention parameters over its own.

    Raises:
        ZeroDivisionError: there are as many parameters as single-head attention has.
    """
    return (score / sha_score - 1) / (parameters / sha_parameters - 1)
