"""The official metrics of GLUE and SuperGLUE, by scikit-learn and scipy, in percent."""

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_mhe.prepare.tasks import Task

Labels = Sequence[str]


def _correlation(function: Callable[..., tuple[float, float]]) -> Callable[..., float]:
    def correlate(found: Labels, right: Labels, groups: Labels) -> float:
        with warnings.catch_warnings(action="ignore"):  # of constant predictions: they score 0
            value = float(function(list(map(float, found)), list(map(float, right)))[0])
        return 0.0 if math.isnan(value) else value

    return correlate


def exact_groups(found: Labels, right: Labels, groups: Labels) -> float:
    """The share of groups in which every label is right (MultiRC's EM of questions)."""
    whole: dict[str, bool] = defaultdict(lambda: True)
    for one, other, group in zip(found, right, groups, strict=True):
        whole[group] &= one == other
    return sum(whole.values()) / len(whole)


def _f1(found: Labels, right: Labels, groups: Labels) -> float:
    return float(f1_score(right, found, pos_label="1", zero_division=0))


#: Name -> (predicted, right, groups) -> from 0 (or -1) to 1.
METRICS: Mapping[str, Callable[[Labels, Labels, Labels], float]] = {
    "accuracy": lambda found, right, _: float(accuracy_score(right, found)),
    "f1": _f1,
    "macro_f1": lambda found, right, _: float(f1_score(right, found, average="macro")),
    "matthews": lambda found, right, _: float(matthews_corrcoef(right, found)),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
    "exact_groups": exact_groups,
}


def scores(
    task: Task, found: Mapping[str, Labels], right: Mapping[str, Mapping[str, Labels]]
) -> dict[str, float]:
    """Every metric of every scored set in percent, and their mean as "score".

    Args:
        task: whose they are.
        found: predictions by the scored set's official name.
        right: "labels" and "groups" of the same.

    Raises:
        ValueError: there are more or fewer predictions than examples.
    """
    values = {}
    for name, predicted in found.items():
        labels, groups = right[name]["labels"], right[name]["groups"]
        if len(predicted) != len(labels):
            raise ValueError(f"{len(predicted)} predictions for {len(labels)} examples of {name}")
        for metric in task.metrics:
            key = metric if len(found) == 1 else f"{metric} {name}"
            values[key] = 100 * METRICS[metric](predicted, labels, groups)
    return {"score": sum(values.values()) / len(values), **values}
