"""What the paper (Xue & Aletras 2023) prints, and its two figures of merit."""

from typing import NamedTuple


class Published(NamedTuple):
    """A line of the translation table, as printed (PRR is not for MHA): #Params of attention in
    millions, BLEU (how it was counted is not published), BLEU in percent of MHA's.
    """

    parameters: str
    bleu: float
    prr: float


#: WMT14 English-German: row -> kind -> what is printed.
TRANSLATION = {
    "base": {
        "mha": Published("18.87", 24.8, 100.0),
        "mhe_mul": Published("6.52", 23.6, 95.0),
    },
    "16x32": {
        "mha": Published("18.87", 25.1, 100.0),
        "mhe_mul": Published("5.63", 22.9, 91.5),
    },
    "4x128": {
        "mha": Published("18.87", 24.7, 100.0),
        "mhe_mul": Published("8.29", 23.6, 95.3),
    },
    "4l": {"mha": Published("12.58", 23.9, 100.0), "mhe_mul": Published("4.34", 22.4, 93.6)},
    "8l": {"mha": Published("25.17", 25.3, 100.0), "mhe_mul": Published("8.69", 24.3, 96.0)},
    "12h": {
        "mha": Published("42.47", 25.7, 100.0),
        "mhe_mul": Published("13.31", 24.2, 94.2),
    },
    "big": {
        "mha": Published("75.50", 26.5, 100.0),
        "mhe_mul": Published("22.47", 24.8, 93.6),
    },
}
#: #Params of the pre-trained language models, of BERT-base's size, in millions. It prints 28.32 for
#: mha; 28,311,552 would be 28.31.
BERT_BASE = {
    "sha": "8.85",
    "mha": "28.32",
    "el": "14.16",
    "mqa": "15.34",
    "skv": "21.23",
    "mhe_add": "8.88",
    "mhe_mul": "8.88",
}
#: Their tasks, in the table's order, and the scores of each kind of attention, one a task.
TASKS = ("GLUE", "SuperGLUE", "SQuAD1.1", "SQuAD2.0")
SCORES = {
    "sha": (79.2, 67.1, 82.5, 67.6),
    "mha": (81.9, 70.5, 88.6, 77.0),
    "el": (80.3, 69.5, 86.5, 72.2),
    "mqa": (81.3, 69.3, 86.7, 74.8),
    "skv": (81.4, 69.9, 88.1, 75.9),
    "mhe_add": (80.4, 69.1, 83.7, 71.8),
    "mhe_mul": (80.6, 69.6, 85.9, 72.3),
}


def published(row: str, kind: str) -> Published | None:
    """The paper's line of a row and kind, None where it has none."""
    return TRANSLATION.get(row, {}).get(kind)


def prr(score: float, mha_score: float) -> float:
    """Performance retention ratio, in percent: what is left of multi-head attention's score."""
    return 100 * score / mha_score


def peop(score: float, sha_score: float, parameters: int, sha_parameters: int) -> float:
    """Performance elasticity of parameters: relative gain over single-head attention's score for a
    relative gain of attention parameters over its own.

    Raises:
        ZeroDivisionError: there are as many parameters as single-head attention has.
    """
    return (score / sha_score - 1) / (parameters / sha_parameters - 1)
