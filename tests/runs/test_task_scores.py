"""The metrics of tasks, against their definitions written out."""

from __future__ import annotations

import math

import pytest

from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.runs.task_scores import METRICS, best_candidates, exact_groups, task_metrics

FOUND = ["1", "1", "0", "1", "0", "0", "1", "0"]
RIGHT = ["1", "0", "0", "1", "1", "0", "1", "1"]
GROUPS = ["q1", "q1", "q2", "q2", "q3", "q3", "q4", "q4"]
TP, FP, FN, TN = 3, 1, 2, 2
XS, YS = [1.0, 2.0, 4.0], [0.0, 3.0, 3.5]
#: Of XS and YS less their means, 7 / 3 and 6.5 / 3.
DX, DY = [x - 7 / 3 for x in XS], [y - 6.5 / 3 for y in YS]
PEARSON = sum(x * y for x, y in zip(DX, DY, strict=True)) / math.sqrt(
    sum(x * x for x in DX) * sum(y * y for y in DY)
)


@pytest.mark.parametrize(
    ("metric", "found", "right", "value"),
    [
        ("accuracy", FOUND, RIGHT, 5 / 8),
        ("f1", FOUND, RIGHT, 2 * TP / (2 * TP + FP + FN)),
        (
            "matthews",
            FOUND,
            RIGHT,
            (TP * TN - FP * FN) / math.sqrt((TP + FP) * (TP + FN) * (TN + FP) * (TN + FN)),
        ),
        # 2 TP / (predicted + there) of a, b and c.
        ("macro_f1", list("aabbc"), list("abbba"), (2 / 4 + 4 / 5 + 0) / 3),
        ("pearson", XS, YS, PEARSON),
        ("spearman", XS, YS, 1),
        ("pearson", [2.0, 2.0, 2.0], YS, 0),
    ],
)
@pytest.mark.filterwarnings("ignore:An input array is constant")
def test_a_metric_is_its_definition(
    metric: str, found: list[str], right: list[str], value: float
) -> None:
    words = [[str(word) for word in words] for words in (right, found)]
    assert METRICS[metric](*words) == pytest.approx(value)


def test_a_group_is_right_where_all_of_it_is() -> None:
    """The second, the fifth and the eighth label are wrong."""
    assert exact_groups(RIGHT, FOUND, GROUPS) == 1 / 4


def test_scores_are_percent_and_their_mean() -> None:
    found = task_metrics(
        TASKS["mrpc"], {"dev": FOUND}, {"dev": {"labels": RIGHT, "groups": GROUPS}}
    )
    assert found["accuracy"] == 62.5
    assert found["score"] == pytest.approx((found["accuracy"] + found["f1"]) / 2)
    both = {"dev_matched": ["neutral"], "dev_mismatched": ["neutral"]}
    labels = {
        "dev_matched": {"labels": ["neutral"], "groups": [""]},
        "dev_mismatched": {"labels": ["entailment"], "groups": [""]},
    }
    wanted = {"score": 50, "accuracy dev_matched": 100, "accuracy dev_mismatched": 0}
    assert task_metrics(TASKS["mnli"], both, labels) == wanted


def test_the_likeliest_candidate_of_a_group() -> None:
    rows = {
        "labels": ["0", "1", "1", "1", "0"],
        "groups": ["q", "q", "q", "r", "r"],
        "candidates": ["x", "y", "z", "x", "y"],
    }
    said, right = best_candidates(["-1.0", "0.5", "0.25", "-3", "-2"], rows)
    assert said == {"q": "y", "r": "y"}
    assert right == {"q": ["y", "z"], "r": ["x"]}
