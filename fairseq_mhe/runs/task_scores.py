"""A fine-tuned model's predictions in official form, and their official scores in percent."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_mhe.common.files import write_json
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE, Task
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.predictions import LanguageModel, best_answers, labels, spans
from fairseq_mhe.runs.squad_scores import (
    given,
    given_by_halves,
    right_answers,
    squad_scores,
    threshold,
)

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


def task_metrics(
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


#: Predictions of each scored set (its official name), and metrics in percent.
Scored = tuple[dict[str, Any], dict[str, float]]


def score_task(
    job: Job, data: TaskFolder, gpu: bool
) -> tuple[dict[str, int], dict[str, float]]:
    """How many examples of each scored set (official name), and every metric in percent.

    Writes predictions.SET.json: a list of labels or numbers; of questions, an object with answers.
    """
    score = {ANSWERS: _score_answers, CANDIDATES: _score_candidates}.get(data.task.form, _score)
    predictions, values = score(LanguageModel(job.last, data.binary, gpu), data)
    for official, of_set in predictions.items():
        write_json(job.folder / f"predictions.{official}.json", of_set)
    return {official: len(of_set) for official, of_set in predictions.items()}, values


def _score(trained: LanguageModel, data: TaskFolder) -> Scored:
    predictions = {}
    for subset, official in data.subsets.items():
        predictions[official] = trained.predictions(subset, partial(labels, data.task))
    return predictions, task_metrics(data.task, predictions, _right(data))


def _right(data: TaskFolder) -> dict[str, dict[str, Any]]:
    return {official: data.examples(subset) for subset, official in data.subsets.items()}


def _score_candidates(trained: LanguageModel, data: TaskFolder) -> Scored:
    ((subset, official),) = data.subsets.items()
    odds = trained.predictions(subset, partial(labels, data.task))
    answers, right = best_candidates(odds, data.examples(subset))
    every = squad_scores(answers, right)
    values = {metric: every[metric] for metric in data.task.metrics}
    return {official: answers}, {"score": sum(values.values()) / len(values), **values}


def best_candidates(
    odds: Sequence[str], facts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Group -> its likeliest candidate; and group -> those that are right."""
    best: dict[str, tuple[float, str]] = {}
    right: dict[str, list[str]] = defaultdict(list)
    rows = zip(odds, facts["labels"], facts["groups"], facts["candidates"], strict=True)
    for value, label, group, candidate in rows:
        if group not in best or float(value) > best[group][0]:
            best[group] = float(value), candidate
        if label == "1":
            right[group].append(candidate)
    return {group: candidate for group, (_, candidate) in best.items()}, right


def _score_answers(trained: LanguageModel, data: TaskFolder) -> Scored:
    ((subset, official),) = data.subsets.items()
    answers = best_answers(trained.predictions(subset, spans), data.examples(subset))
    right = right_answers(data.official(subset))
    if data.task.name == "squad1":
        texts, further = {name: answer.text for name, answer in answers.items()}, {}
    else:
        texts = given_by_halves(answers, right)
        # The official evaluation's: by the threshold that is best for what is scored.
        best = squad_scores(given(answers, threshold(answers, right)), right)
        further = {"f1 by the best threshold": best["f1"]}
    values = squad_scores(texts, right)
    return {official: texts}, {"score": values["f1"], **values, **further}


def commonest_score(data: TaskFolder) -> float | None:
    """What always giving the training examples' commonest label scores; of SQuAD 2.0 no answer.

    None of numbers, candidates, and questions that all have answers: nothing is the commonest.
    """
    task = data.task
    if task.name == "squad2":
        questions = right_answers(data.official("valid"))
        return squad_scores(dict.fromkeys(questions, ""), questions)["f1"]
    if task.labels is None or task.form == CANDIDATES:
        return None
    place = data.binary / "label" if task.form == CHOICE else data.folder / "raw"
    commonest = statistics.mode(read_lines(place / "train.label"))
    right = _right(data)
    constant = {
        official: [commonest] * len(facts["labels"]) for official, facts in right.items()
    }
    return task_metrics(task, constant, right)["score"]
