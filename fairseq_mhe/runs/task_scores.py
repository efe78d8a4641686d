"""Predict the answers of a fine-tuned model for a task's examples, and score them."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_mhe.common.files import Json, write_json
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.runs import squad
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.language_model import LanguageModel, Span, labels, spans
from fairseq_mhe.runs.squad import Answer

Labels = Sequence[str]


def best_answers(predicted: Sequence[Span], facts: Json) -> dict[str, Answer]:
    """Return question -> best answer over the best spans of its windows; ``facts``: of `Inputs`.

    A question's score of no answer is the lowest of its windows, as in BERT's run_squad.py.
    """
    best: dict[int, tuple[float, str]] = {}
    no_answer: dict[int, float] = {}
    for span, window in zip(predicted, facts["windows"], strict=True):
        score, no_answer_score, first, last = span
        question, context_index, start, _ = window  # the window starts at subword `start`
        no_answer[question] = min(no_answer.get(question, math.inf), no_answer_score)
        if question not in best or score > best[question][0]:
            context = facts["contexts"][context_index]
            begin = context["begins"][start + first]
            end = context["ends"][start + last]
            best[question] = score, context["text"][begin:end]
    return {
        identity: Answer(best[n][1], no_answer[n] - best[n][0])
        for n, identity in enumerate(facts["questions"])
    }


def best_candidates(
    odds: Sequence[str], facts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return group -> candidate of the highest odds, and group -> right candidates."""
    chosen: dict[str, str] = {}
    gold: dict[str, list[str]] = defaultdict(list)
    rows = zip(odds, facts["labels"], facts["groups"], facts["candidates"], strict=True)
    by_odds = sorted(rows, key=lambda row: float(row[0]), reverse=True)
    for _, label, group, candidate in by_odds:
        chosen.setdefault(group, candidate)
        if label == "1":
            gold[group].append(candidate)
    return chosen, gold


def _correlation(function: Any, gold: Labels, predicted: Labels) -> float:
    if 1 in (len(set(predicted)), len(set(gold))):
        return 0.0  # a constant has no correlation; SciPy would warn and return NaN
    numbers = [list(map(float, labels)) for labels in (predicted, gold)]
    return float(function(*numbers)[0])


#: Name -> function of gold and predicted labels; 1 is the best value.
METRICS = {
    "accuracy": accuracy_score,
    "f1": partial(f1_score, pos_label="1", zero_division=0),
    "macro_f1": partial(f1_score, average="macro"),
    "matthews": matthews_corrcoef,
    "pearson": partial(_correlation, pearsonr),
    "spearman": partial(_correlation, spearmanr),
}


def exact_groups(gold: Labels, predicted: Labels, groups: Labels) -> float:
    """Return the share of groups whose labels are all right (MultiRC's EM of questions)."""
    all_right = dict.fromkeys(groups, True)
    for wanted, label, group in zip(gold, predicted, groups, strict=True):
        all_right[group] &= label == wanted
    return statistics.fmean(all_right.values())


def task_metrics(data: TaskFolder, predictions: Mapping[str, Labels]) -> dict[str, float]:
    """Return all metrics in percent and "score", their mean; ``predictions``: by official set."""
    values = {}
    for subset, official in data.task.subsets.items():
        facts = data.examples(subset)
        predicted = predictions[official]
        for metric in data.task.metrics:
            if metric == "exact_groups":
                value = exact_groups(facts["labels"], predicted, facts["groups"])
            else:
                value = float(METRICS[metric](facts["labels"], predicted))
            name = metric if len(predictions) == 1 else f"{metric} {official}"
            values[name] = 100 * value
    return {"score": statistics.fmean(values.values()), **values}


def score_task(job: Job, data: TaskFolder, gpu: bool) -> Json:
    """Write and score predictions; return each set's number of examples, and metrics in percent."""
    task = data.task
    language_model = LanguageModel(job.last, data.binary, gpu)
    predict = spans if task.form == ANSWERS else partial(labels, task)
    predictions: Json = {}
    for subset, official in task.subsets.items():
        predictions[official] = language_model.predictions(subset, predict)
    # Tasks of answers or candidates have one scored set: the `subset` of the loop above.
    if task.form == ANSWERS:
        answers = best_answers(predictions[official], data.examples(subset))
        gold = squad.gold_answers(data.official)
        limit = squad.threshold(answers, gold) if task.name == "squad2" else math.inf
        predictions[official] = squad.answers_up_to(answers, limit)
        values = squad.squad_scores(predictions[official], gold)
        values = {"score": values["f1"], **values}
    elif task.form == CANDIDATES:
        chosen, gold = best_candidates(predictions[official], data.examples(subset))
        predictions[official] = chosen
        values = squad.squad_scores(chosen, gold)
        values = {metric: values[metric] for metric in task.metrics}
        values = {"score": statistics.fmean(values.values()), **values}
    else:
        values = task_metrics(data, predictions)
    for official, of_set in predictions.items():
        write_json(job.folder / f"predictions.{official}.json", of_set)
    examples = {official: len(of_set) for official, of_set in predictions.items()}
    return {"task": task.name, "examples": examples, "scores": values}


def commonest_score(data: TaskFolder) -> float | None:
    """Return the score of always predicting the commonest label (SQuAD 2.0: no answer), or None."""
    task = data.task
    if task.name == "squad2":
        questions = squad.gold_answers(data.official)
        return squad.squad_scores(dict.fromkeys(questions, ""), questions)["f1"]
    if task.labels is None or task.form == CANDIDATES:
        return None
    folder = data.binary / "label" if task.form == CHOICE else data.folder / "raw"
    commonest = statistics.mode(read_lines(folder / "train.label"))
    constant = {}
    for subset, official in task.subsets.items():
        constant[official] = [commonest] * len(data.examples(subset)["labels"])
    return task_metrics(data, constant)["score"]
