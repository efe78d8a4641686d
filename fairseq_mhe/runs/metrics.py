"""The official metrics of GLUE and SuperGLUE, by scikit-learn and scipy, in percent."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_mhe.prepare.tasks import Task

Labels = Sequence[str]


def _correlation(function: Any, right: Labels, predicted: Labels) -> float:
    value = float(function(list(map(float, predicted)), list(map(float, right)))[0])
    return 0.0 if math.isnan(value) else value  # of constant predictions


#: Name -> (right, predicted) -> from 0 (or -1) to 1.
METRICS: dict[str, Callable[[Labels, Labels], float]] = {
    "accuracy": accuracy_score,
    "f1": partial(f1_score, pos_label="1", zero_division=0),
    "macro_f1": partial(f1_score, average="macro"),
    "matthews": matthews_corrcoef,
    "pearson": partial(_correlation, pearsonr),
    "spearman": partial(_correlation, spearmanr),
}


def exact_groups(right: Labels, predicted: Labels, groups: Labels) -> float:
    """The share of groups in which every label is right (MultiRC's EM of questions)."""
    whole: dict[str, bool] = defaultdict(lambda: True)
    for one, other, group in zip(right, predicted, groups, strict=True):
        whole[group] &= one == other
    return sum(whole.values()) / len(whole)


def scores(
    task: Task, predictions: Mapping[str, Labels], right: Mapping[str, Mapping[str, Labels]]
) -> dict[str, float]:
    """Every metric of every scored set in percent, and their mean as "score".

    ``predictions``: by the scored set's official name; ``right``: "labels" and "groups" of it.
    """
    values = {}
    for name, predicted in predictions.items():
        labels, groups = right[name]["labels"], right[name]["groups"]
        for metric in task.metrics:
            if metric == "exact_groups":
                value = exact_groups(labels, predicted, groups)
            else:
                value = float(METRICS[metric](labels, predicted))
            values[metric if len(predictions) == 1 else f"{metric} {name}"] = 100 * value
    return {"score": sum(values.values()) / len(values), **values}
