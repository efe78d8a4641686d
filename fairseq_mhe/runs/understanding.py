"""Language models on tasks: how they are fine-tuned, what they say of every example, its score."""

import math
import statistics
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    Json,
    output_folder,
    read_json,
    sha256,
    write_json,
    yaml_beside,
)
from fairseq_mhe.models.families import ROBERTA, training_options
from fairseq_mhe.models.understanding import (
    ANSWER_HEAD,
    CLASS_HEAD,
    WORDS_HEAD,
    passage,
    span_scores,
)
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE, WORDS, Task
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.runs import devices, squad
from fairseq_mhe.runs.job import Job, plan_job, read_job, settings_of
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.squad import Answer

#: Heads, by what a task asks for; of other tasks CLASS_HEAD.
_HEADS = {ANSWERS: ANSWER_HEAD, WORDS: WORDS_HEAD}


def _recipe(row: str, data: TaskFolder, epochs: int | None) -> Json:
    """fairseq-train's options of a model's row for a task, from finetuning.yaml."""
    task = data.task
    recipes = yaml_beside(__file__, "finetuning.yaml")
    options = {**recipes["every task"], **recipes["forms"][task.form]}
    of_row = recipes["base" if row == "base" else "small rows"]
    options |= {**of_row["others"], **of_row.get(task.name, {})}
    usual = options.pop("epochs")
    updates = math.ceil(data.training / options["batch_size"]) * (epochs or usual)
    options |= dict.fromkeys(
        ("max_update", "total_num_update", "save_interval_updates"), updates
    )
    if task.form != CHOICE:
        options["classification_head_name"] = _HEADS.get(task.form, CLASS_HEAD)
    return {
        **options,
        "warmup_updates": max(1, updates * 6 // 100),
        "num_classes": 2 if task.form == ANSWERS else len(task.labels or "1"),
        "regression_target": task.labels is None,
        "valid_subset": ",".join(task.subsets),
    }


def describe(checkpoint: Path) -> Json:
    """What fine-tuning needs to know of a masked language model, or UserError for another model."""
    source = open_source(checkpoint)
    if source.family is not ROBERTA:
        raise UserError(
            f"{checkpoint} is a {source.family.stock}, not a roberta: fine-tuning starts from a "
            "masked language model"
        )
    model: Any = source.model
    options = training_options(source.options) | {"max_positions": model.max_positions()}
    facts = {"row": source.row, "attention": source.attention, "options": options}
    return {"sha256": sha256(checkpoint), **facts}


def plan_finetuning(model: Path, data: TaskFolder, seed: int, args: Namespace) -> Job:
    """The run that fine-tunes a run folder of pretrain, or a checkpoint, on a task.

    No checkpoint is read of a masked model's run. ``args``: ``out``, ``epochs`` and `devices`'.
    UserError where the model is not trained to its end, has other subwords or too few positions.
    """
    trained = Job(model, {})
    if not model.is_dir():
        checkpoint = model
        facts = describe(model)
    elif trained.scores.exists():
        checkpoint = trained.last
        facts = read_json(trained.scores).get("model") or describe(checkpoint)
    else:
        raise UserError(
            f"{model} is no finished run of pretrain: give the command that trains it again"
        )
    if (model / "config.json").is_file():  # a study's start has none
        before = read_job(model).settings["data"]  # of a fine-tuned run a task's
        if data.text != before.get("text", before["fingerprint"]):
            raise UserError(
                f"{data.folder} is not in the subwords of {model}: prepare the task with the "
                "--text that the model was trained on"
            )
    positions = facts["options"]["max_positions"]
    if data.block > positions:
        raise UserError(
            f"{data.folder} has examples of up to {data.block} subwords, the model {positions} "
            f"positions: prepare the task with --block {positions}"
        )
    row = facts["row"]
    task = data.task
    training = Training({**facts["options"], **_recipe(row, data, args.epochs)})
    training = training.with_precision(devices.precision(args))
    own = {"task": task.name, "start": facts["sha256"]}
    settings = settings_of(row, facts["attention"], seed, training, data.identity, **own)
    places = {"data": str(data.folder), "start": str(checkpoint.resolve())}
    name = model.resolve().name if model.is_dir() else model.stem
    folder = output_folder(args.out) / f"{name}-{task.name}-seed{seed}"
    return plan_job(folder, settings, places)


#: Subwords of an answer at most, as is usual (BERT's run_squad.py, --max_answer_length).
_LONGEST = 30
#: A window's best answer: its score, the score of no answer, its first and last subword.
Span = tuple[float, float, int, int]
Labels = Sequence[str]


class LanguageModel:
    """A trained model with fairseq's task, on a GPU or on the CPU."""

    def __init__(self, checkpoint: Path, data: Path, gpu: bool) -> None:
        """``data``: the folder of binary text, wherever it lay in training."""
        models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        self.model: Any = models[0].eval()
        self._gpu = gpu
        if gpu:
            self.model.cuda()

    def batches(self, subset: str, sentences: int) -> Iterator[Json]:
        """A data set in batches of ``sentences``, on the model's device."""
        self.task.load_dataset(subset)
        batches = self.task.get_batch_iterator(
            self.task.dataset(subset),
            max_sentences=sentences,
            max_positions=self.model.max_positions(),
            required_batch_size_multiple=1,
        )
        for batch in batches.next_epoch_itr(shuffle=False):
            yield utils.move_to_cuda(batch) if self._gpu else batch

    @torch.inference_mode()
    def predictions(
        self, subset: str, predict: Callable[[Any, Json], list[Any]]
    ) -> list[Any]:
        """What ``predict(self, batch)`` returns of each example, in order."""
        values: dict[int, Any] = {}
        for batch in self.batches(subset, sentences=64):
            values |= zip(batch["id"].tolist(), predict(self, batch), strict=True)
        return [values[index] for index in sorted(values)]


@torch.inference_mode()
def validation_loss(checkpoint: Path, data: Path, gpu: bool) -> Json:
    """Mean negative log-likelihood on ``valid``: in nats, of how many subwords.

    Of a masked model, the subwords that its task masks by its seed; of a causal model, all.
    """
    trained = LanguageModel(checkpoint, data, gpu)
    total = torch.zeros((), dtype=torch.float64)
    subwords = 0
    for batch in trained.batches("valid", sentences=32):
        output = trained.model(**batch["net_input"])  # logits (B, T, vocabulary) first
        target = trained.model.get_targets(batch, output)  # (B, T)
        asked = target.ne(trained.task.source_dictionary.pad())
        scores = trained.model.get_normalized_probs(output, log_probs=True, sample=batch)
        wanted = target[asked].unsqueeze(-1)  # (N, 1)
        right = scores.float()[asked].gather(-1, wanted)
        total -= right.double().sum().cpu()
        subwords += int(asked.sum())
    of = "masked subwords" if hasattr(trained.task, "mask_idx") else "all subwords"
    return {"of": of, "nats": float(total) / subwords, "subwords": subwords}


def labels(task: Task, language_model: LanguageModel, batch: Json) -> list[str]:
    """A label or number of each example; of a candidate, how likely it is right, in logits."""
    head = _HEADS.get(task.form, CLASS_HEAD)
    options = {"features_only": True, "classification_head_name": head}
    # One input for each choice.
    inputs = [batch[name] for name in batch if name.startswith("net_input")]
    parts = [language_model.model(**each, **options)[0] for each in inputs]
    logits = torch.cat(parts, dim=1).float()  # (B, classes or choices)
    if task.form == CANDIDATES:
        numbers = logits[:, 1] - logits[:, 0]
    elif task.labels is None:
        numbers = logits[:, 0]
    else:
        return [task.labels[index] for index in logits.argmax(dim=1).tolist()]
    return [f"{number:.6f}" for number in numbers.tolist()]


def spans(language_model: LanguageModel, batch: Json) -> list[Span]:
    """The best answer within each window."""
    net_input = batch["net_input"]
    end = language_model.task.source_dictionary.eos()
    scores = span_scores(language_model.model, net_input, end)  # (B, T, 2)
    none = scores[:, 0].sum(-1)  # (B,)
    scores[:, 0] = -math.inf  # an answer is in the passage
    sums = scores[:, :, :1] + scores[:, None, :, 1]  # (B, T first, T last)
    length = sums.size(1)
    allowed = sums.new_ones(length, length, dtype=torch.bool)  # (T first, T last)
    allowed = allowed.triu().tril(_LONGEST - 1)
    best, at = sums.masked_fill(~allowed, -math.inf).flatten(1).max(1)  # (B,)
    inside = passage(net_input["src_tokens"], end)  # (B, T)
    ahead = inside.int().argmax(1)  # where the passage begins
    columns = (best, none, at // length - ahead, at % length - ahead)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def best_answers(windows: Sequence[Span], facts: Json) -> dict[str, Answer]:
    """Question -> the best answer over all its ``windows``.

    A question's score of no answer is the lowest of its windows, as in BERT's run_squad.py.
    """
    best: dict[int, tuple[float, str]] = {}
    none: dict[int, float] = {}
    for (score, nothing, first, last), place in zip(
        windows, facts["windows"], strict=True
    ):
        question, number, start, _ = place
        none[question] = min(none.get(question, nothing), nothing)
        if question not in best or score > best[question][0]:
            context = facts["contexts"][number]
            begin = context["begins"][start + first]
            end = context["ends"][start + last]
            best[question] = score, context["text"][begin:end]
    return {
        identity: Answer(best[n][1], none[n] - best[n][0])
        for n, identity in enumerate(facts["questions"])
    }


def best_candidates(
    odds: Sequence[str], facts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Group -> its likeliest candidate; and group -> those that are right."""
    chosen: dict[str, str] = {}
    highest: dict[str, float] = {}
    right: dict[str, list[str]] = defaultdict(list)
    rows = zip(odds, facts["labels"], facts["groups"], facts["candidates"], strict=True)
    for value, label, group, candidate in rows:
        number = float(value)
        if group not in chosen or number > highest[group]:
            highest[group] = number
            chosen[group] = candidate
        if label == "1":
            right[group].append(candidate)
    return chosen, right


def _correlation(function: Any, right: Labels, predicted: Labels) -> float:
    if 1 in (len(set(predicted)), len(set(right))):  # SciPy warns: it is not defined
        return 0.0
    numbers = [list(map(float, labels)) for labels in (predicted, right)]
    return float(function(*numbers)[0])


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
    whole = dict.fromkeys(groups, True)
    for one, other, group in zip(right, predicted, groups, strict=True):
        whole[group] &= one == other
    return statistics.fmean(whole.values())


def task_metrics(data: TaskFolder, predictions: Mapping[str, Labels]) -> dict[str, float]:
    """Every metric in percent, and their mean as "score"; sets go by their official names."""
    values = {}
    for subset, name in data.task.subsets.items():
        facts = data.examples(subset)
        predicted = predictions[name]
        for metric in data.task.metrics:
            if metric == "exact_groups":
                value = exact_groups(facts["labels"], predicted, facts["groups"])
            else:
                value = float(METRICS[metric](facts["labels"], predicted))
            values[metric if len(predictions) == 1 else f"{metric} {name}"] = 100 * value
    return {"score": statistics.fmean(values.values()), **values}


def score_task(job: Job, data: TaskFolder, gpu: bool) -> Json:
    """Examples of each scored set (official name), and metrics in percent; writes predictions."""
    task = data.task
    trained = LanguageModel(job.last, data.binary, gpu)
    predict = spans if task.form == ANSWERS else partial(labels, task)
    predictions: Json = {}
    for subset, official in task.subsets.items():
        predictions[official] = trained.predictions(subset, predict)
    if task.form == ANSWERS:
        answers = best_answers(predictions[official], data.examples(subset))
        right = squad.right_answers(data.official)
        most = squad.threshold(answers, right) if task.name == "squad2" else math.inf
        predictions[official] = squad.answers_up_to(answers, most)
        every = squad.squad_scores(predictions[official], right)
        values = {"score": every["f1"], **every}
    elif task.form == CANDIDATES:
        chosen, groups = best_candidates(predictions[official], data.examples(subset))
        predictions[official] = chosen
        every = squad.squad_scores(chosen, groups)
        values = {metric: every[metric] for metric in task.metrics}
        values = {"score": statistics.fmean(values.values()), **values}
    else:
        values = task_metrics(data, predictions)
    for official, of_set in predictions.items():
        write_json(job.folder / f"predictions.{official}.json", of_set)
    examples = {official: len(of_set) for official, of_set in predictions.items()}
    return {"task": task.name, "examples": examples, "scores": values}


def commonest_score(data: TaskFolder) -> float | None:
    """The score of the training examples' commonest label, of SQuAD 2.0 of no answer; else None."""
    task = data.task
    if task.name == "squad2":
        questions = squad.right_answers(data.official)
        return squad.squad_scores(dict.fromkeys(questions, ""), questions)["f1"]
    if task.labels is None or task.form == CANDIDATES:
        return None
    place = data.binary / "label" if task.form == CHOICE else data.folder / "raw"
    commonest = statistics.mode(read_lines(place / "train.label"))
    constant = {}
    for subset, name in task.subsets.items():
        examples = data.examples(subset)["labels"]
        constant[name] = [commonest] * len(examples)
    return task_metrics(data, constant)["score"]
