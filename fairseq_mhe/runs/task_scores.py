"""A fine-tuned run's predictions in official form, and their official scores."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from fairseq_mhe.common.files import write_json
from fairseq_mhe.prepare.squad import read_squad
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.runs.answers import Answer, best_answers, said_by, said_by_halves, threshold
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.metrics import scores
from fairseq_mhe.runs.predictions import Fitted
from fairseq_mhe.runs.squad_scores import right_answers, squad_scores


def score_task(run: Job, data: TaskFolder, gpu: bool) -> tuple[dict[str, int], dict[str, float]]:
    """How many examples of each scored set (official name), and every metric in percent.

    Writes predictions.SET.json: a list of labels or numbers; of questions with answers, an object
    question: answer, and of SQuAD 2.0 null_odds.SET.json beside it, which the official evaluation
    takes as --na-prob-file.

    Raises:
        UserError: the checkpoint cannot be read, or a file of the task's folder.
    """
    fitted = Fitted(run, data, gpu)
    if data.task.form == ANSWERS:
        return _answers(run, data, fitted)
    right = {official: data.examples(subset) for subset, official in data.subsets.items()}
    found = {official: fitted.labels(subset) for subset, official in data.subsets.items()}
    counts = {official: len(lines) for official, lines in found.items()}
    if data.task.form == CANDIDATES:
        ((official, odds),) = found.items()
        said, answers = best_candidates(odds, right[official])
        write_json(run.folder / f"predictions.{official}.json", said)
        values = squad_scores(said, answers)
        values = {metric: values[metric] for metric in data.task.metrics}
        return {official: len(said)}, {"score": _mean(values), **values}
    for official, lines in found.items():
        write_json(run.folder / f"predictions.{official}.json", lines)
    return counts, scores(data.task, found, right)


def commonest_score(data: TaskFolder) -> float | None:
    """What always giving the training examples' commonest label scores; of SQuAD 2.0 no answer.

    None of numbers, candidates, and questions that all have answers: nothing is the commonest.

    Raises:
        UserError: a file of the task's folder cannot be read.
    """
    task = data.task
    if task.name == "squad2":
        right = right_answers(data.official("valid"))
        return squad_scores(dict.fromkeys(right, ""), right)["f1"]
    if task.labels is None or task.form in (ANSWERS, CANDIDATES):
        return None
    place = data.binary / "label" if task.form == CHOICE else data.folder / "raw"
    ((label, _),) = Counter(read_lines(place / "train.label")).most_common(1)
    facts = {official: data.examples(subset) for subset, official in data.subsets.items()}
    said = {official: [label] * len(each["labels"]) for official, each in facts.items()}
    return scores(task, said, facts)["score"]


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


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


def _answers(run: Job, data: TaskFolder, fitted: Fitted) -> tuple[dict[str, int], dict[str, float]]:
    ((subset, official),) = data.subsets.items()
    path = data.official(subset)
    contexts = [paragraph.context for paragraph in read_squad(path)]
    found = best_answers(fitted.spans(subset), data.examples(subset), contexts)
    right = right_answers(path)
    said, further = {name: answer.text for name, answer in found.items()}, {}
    if data.task.name == "squad2":
        said, further = said_by_halves(found, right), _best_on_itself(found, right)
        odds = {name: answer.odds for name, answer in found.items()}
        write_json(run.folder / f"null_odds.{official}.json", odds)
    write_json(run.folder / f"predictions.{official}.json", said)
    values = squad_scores(said, right)
    return {official: len(said)}, {"score": values["f1"], **values, **further}


def _best_on_itself(
    found: Mapping[str, Answer], right: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """The official evaluation's best F1: by the threshold that is best for what is scored."""
    values = squad_scores(said_by(found, threshold(found, right)), right)
    return {"f1 by the best threshold": values["f1"]}
