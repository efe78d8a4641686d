"""The metrics of tasks, against their definitions written out."""

from __future__ import annotations

import math

import pytest

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.runs.metrics import METRICS, scores

FOUND = ["1", "1", "0", "1", "0", "0", "1", "0"]
RIGHT = ["1", "0", "0", "1", "1", "0", "1", "1"]
TP, FP, FN, TN = 3, 1, 2, 2


def right(labels: list[str], groups: list[str] | None = None) -> dict[str, list[str]]:
    return {"labels": labels, "groups": groups or [""] * len(labels)}


def test_binary_metrics() -> None:
    values = {
        name: METRICS[name](FOUND, RIGHT, [""] * 8) for name in ("f1", "matthews", "accuracy")
    }
    product = (TP + FP) * (TP + FN) * (TN + FP) * (TN + FN)
    assert values["matthews"] == pytest.approx((TP * TN - FP * FN) / math.sqrt(product))
    assert values["f1"] == pytest.approx(2 * TP / (2 * TP + FP + FN))
    assert values["accuracy"] == 5 / 8


def test_macro_f1_is_the_mean_of_classes() -> None:
    found, labels = list("aabbc"), list("abbba")
    of_class = (2 / 4, 4 / 5, 0)  # 2 TP / (predicted + there) of a, b, c
    assert METRICS["macro_f1"](found, labels, []) == pytest.approx(sum(of_class) / 3)


def test_correlations() -> None:
    found, labels = ["1.0", "2.0", "4.0"], ["0", "3", "3.5"]
    mean_x, mean_y = 7 / 3, 6.5 / 3
    xs, ys = [x - mean_x for x in (1, 2, 4)], [y - mean_y for y in (0, 3, 3.5)]
    product = sum(x * y for x, y in zip(xs, ys, strict=True))
    wanted = product / math.sqrt(sum(x * x for x in xs) * sum(y * y for y in ys))
    assert METRICS["pearson"](found, labels, []) == pytest.approx(wanted)
    assert METRICS["spearman"](found, labels, []) == pytest.approx(1)
    assert METRICS["pearson"](["2", "2", "2"], labels, []) == 0


def test_a_group_is_right_where_all_of_it_is() -> None:
    groups = ["q1", "q1", "q2", "q2", "q3", "q3", "q4", "q4"]
    # wrong: the second, the fifth and the eighth
    assert METRICS["exact_groups"](FOUND, RIGHT, groups) == 1 / 4


def test_scores_are_percent_and_their_mean() -> None:
    found = scores(TASKS["mrpc"], {"dev": FOUND}, {"dev": right(RIGHT)})
    assert found["accuracy"] == 62.5
    assert found["score"] == pytest.approx((found["accuracy"] + found["f1"]) / 2)
    both = {"dev_matched": ["neutral"], "dev_mismatched": ["neutral"]}
    labels = {"dev_matched": right(["neutral"]), "dev_mismatched": right(["entailment"])}
    assert scores(TASKS["mnli"], both, labels) == {
        "score": 50,
        "accuracy dev_matched": 100,
        "accuracy dev_mismatched": 0,
    }


def test_a_missing_prediction_is_told() -> None:
    with pytest.raises(ValueError, match="7 predictions for 8 examples of dev"):
        scores(TASKS["mrpc"], {"dev": FOUND[1:]}, {"dev": right(RIGHT)})
