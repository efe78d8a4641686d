"""The official metrics of GLUE and SuperGLUE, by scikit-learn and scipy, in percent."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_mhe.prepare.tasks import Task

Labels = Sequence[str]


def _correlation(function: Callable[..., tuple[float, float]]) -> Callable[..., float]:
    def correlate(predicted: Labels, right: Labels, groups: Labels) -> float:
        value = float(function(list(map(float, predicted)), list(map(float, right)))[0])
        return 0.0 if math.isnan(value) else value  # of constant predictions

    return correlate


def exact_groups(predicted: Labels, right: Labels, groups: Labels) -> float:
    """The share of groups in which every label is right (MultiRC's EM of questions)."""
    whole: dict[str, bool] = defaultdict(lambda: True)
    for one, other, group in zip(predicted, right, groups, strict=True):
        whole[group] &= one == other
    return sum(whole.values()) / len(whole)


def _f1(predicted: Labels, right: Labels, groups: Labels) -> float:
    return float(f1_score(right, predicted, pos_label="1", zero_division=0))


#: Name -> (predicted, right, groups) -> from 0 (or -1) to 1.
METRICS: Mapping[str, Callable[[Labels, Labels, Labels], float]] = {
    "accuracy": lambda predicted, right, _: float(accuracy_score(right, predicted)),
    "f1": _f1,
    "macro_f1": lambda predicted, right, _: float(f1_score(right, predicted, average="macro")),
    "matthews": lambda predicted, right, _: float(matthews_corrcoef(right, predicted)),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
    "exact_groups": exact_groups,
}


def scores(
    task: Task, predictions: Mapping[str, Labels], right: Mapping[str, Mapping[str, Labels]]
) -> dict[str, float]:
    """Every metric of every scored set in percent, and their mean as "score".

    ``predictions``: by the scored set's official name; ``right``: "labels" and "groups" of it.
    """
    values = {}
    for name, predicted in predictions.items():
        for metric in task.metrics:
            value = METRICS[metric](predicted, right[name]["labels"], right[name]["groups"])
            values[metric if len(predictions) == 1 else f"{metric} {name}"] = 100 * value
    return {"score": sum(values.values()) / len(values), **values}
