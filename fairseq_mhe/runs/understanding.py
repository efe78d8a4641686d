"""Fine-tune language models on tasks, predict the answer of every example, and score it."""

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

from fairseq_mhe.checkpoints.checkpoint import checkpoint_path, open_source
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
from fairseq_mhe.models.understanding import passage, span_scores
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE, Task
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.runs import devices, squad
from fairseq_mhe.runs.job import Job, plan_job, read_job, settings_of
from fairseq_mhe.runs.squad import Answer
from fairseq_mhe.runs.training import Training


def _task_options(row: str, data: TaskFolder, epochs: int | None) -> Json:
    """Return fairseq-train's options, from finetuning.yaml, for a task and a model of ``row``."""
    task = data.task
    recipes = yaml_beside(__file__, "finetuning.yaml")
    options = {**recipes["every task"], **recipes["forms"][task.form]}
    row_options = recipes["base" if row == "base" else "small rows"]
    options |= {**row_options["default"], **row_options.get(task.name, {})}
    default_epochs = options.pop("epochs")
    examples = data.manifest["lines"]["train"]
    batches = math.ceil(examples / options["batch_size"])  # in an epoch
    updates = batches * (epochs or default_epochs)
    return {
        **options,
        "max_update": updates,
        "total_num_update": updates,
        "save_interval_updates": updates,
        "warmup_updates": max(1, updates * 6 // 100),
        "num_classes": 2 if task.form == ANSWERS else len(task.labels or ["a number"]),
        "regression_target": task.labels is None,
        "valid_subset": ",".join(task.subsets),
    }


def describe(checkpoint: Path) -> Json:
    """Return what fine-tuning needs of a masked language model; UserError for other models."""
    source = open_source(checkpoint)
    if source.family is not ROBERTA:
        raise UserError(
            f"{checkpoint} is a {source.family.stock}, not a roberta: fine-tuning starts from a "
            "masked language model"
        )
    positions = source.model.max_positions()
    options = training_options(source.options) | {"max_positions": positions}
    facts = {"row": source.row, "attention": source.attention, "options": options}
    return {"sha256": sha256(checkpoint), **facts}


def plan_finetuning(model: Path, data: TaskFolder, seed: int, args: Namespace) -> Job:
    """Plan the job that fine-tunes ``model``, a run folder of pretrain or a checkpoint, on a task.

    ``args``: ``out``, ``epochs`` and the options of `devices`. Raises UserError if the model is
    not trained to its end, has other subwords than the task, or too few positions.
    """
    scores = model / "scores.json"
    if model.is_dir() and not scores.exists():
        raise UserError(
            f"{model} is no finished run of pretrain: give one, or finish its training"
        )
    checkpoint = checkpoint_path(model)
    # scores.json describes a masked model, so that its checkpoint need not be read.
    described = read_json(scores).get("model") if model.is_dir() else None
    facts = described or describe(checkpoint)
    if (model / "config.json").is_file():
        trained_on = read_job(model).settings["data"]
        # The data of a fine-tuned model are a task, which names the text of its subwords "text".
        if data.manifest["text"] != trained_on.get("text", trained_on["fingerprint"]):
            raise UserError(
                f"{data.folder} is not in the subwords of {model}: prepare the task with the "
                "--text that the model was trained on"
            )
    positions = facts["options"]["max_positions"]
    block = data.manifest["block"]
    if block > positions:
        raise UserError(
            f"{data.folder} has examples of up to {block} subwords, but the model has "
            f"{positions} positions: prepare the task with --block {positions}"
        )
    row = facts["row"]
    task = data.task
    training = Training({**facts["options"], **_task_options(row, data, args.epochs)})
    training = training.with_precision(devices.precision(args))
    more = {"task": task.name, "start": facts["sha256"]}
    settings = settings_of(row, facts["attention"], seed, training, data.identity, **more)
    input_paths = {"data": str(data.folder), "start": str(checkpoint.resolve())}
    name = model.resolve().name if model.is_dir() else model.stem
    folder = output_folder(args.out) / f"{name}-{task.name}-seed{seed}"
    return plan_job(folder, settings, input_paths)


#: Most subwords of an answer, the default of BERT's run_squad.py (--max_answer_length).
_MAX_ANSWER_LENGTH = 30
#: Best answer in a window: its score, the score of no answer, its first and last subword.
Span = tuple[float, float, int, int]
Labels = Sequence[str]


class LanguageModel:
    """A trained model with fairseq's task, on a GPU or on the CPU."""

    def __init__(self, checkpoint: Path, data: Path, gpu: bool) -> None:
        """``data``: binary folder of the text or task; it may have moved since training."""
        models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        self.model: Any = models[0].eval()
        self._gpu = gpu
        if gpu:
            self.model.cuda()

    def batches(self, subset: str, sentences: int) -> Iterator[Json]:
        """Yield the batches of a data set on the model's device, of ``sentences`` examples each."""
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
    def predictions(self, subset: str, predict: Callable[..., list[Any]]) -> list[Any]:
        """Return what ``predict(self, batch)`` gives for each example, in the data set's order."""
        by_id: dict[int, Any] = {}
        for batch in self.batches(subset, sentences=64):
            by_id |= zip(batch["id"].tolist(), predict(self, batch), strict=True)
        return [by_id[index] for index in sorted(by_id)]


@torch.inference_mode()
def validation_loss(checkpoint: Path, data: Path, gpu: bool) -> Json:
    """Return the mean negative log-likelihood on ``valid``, in nats, and its number of subwords.

    It covers the subwords that the task masks by its seed, or all subwords for a causal model.
    """
    language_model = LanguageModel(checkpoint, data, gpu)
    model = language_model.model
    total = torch.zeros((), dtype=torch.float64)
    subwords = 0
    for batch in language_model.batches("valid", sentences=32):
        output = model(**batch["net_input"])  # the first is logits (B, T, V)
        log_probs = model.get_normalized_probs(output, log_probs=True, sample=batch)
        target = model.get_targets(batch, output)  # (B, T)
        counted = target.ne(language_model.task.source_dictionary.pad())  # (B, T)
        of_target = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (B, T)
        total -= of_target[counted].double().sum().cpu()
        subwords += int(counted.sum())
    is_masked = hasattr(language_model.task, "mask_idx")
    of = "masked subwords" if is_masked else "all subwords"
    return {"of": of, "nats": float(total) / subwords, "subwords": subwords}


def labels(task: Task, language_model: LanguageModel, batch: Json) -> list[str]:
    """Return the label or number of each example; for a candidate the log odds that it is right."""
    (head,) = language_model.model.classification_heads  # a fine-tuned model has one
    options = {"features_only": True, "classification_head_name": head}
    # A task of choices has one net_input for each choice.
    inputs = [batch[name] for name in batch if name.startswith("net_input")]
    outputs = [language_model.model(**each, **options)[0] for each in inputs]
    logits = torch.cat(outputs, dim=1).float()  # (B, classes or choices)
    if task.form == CANDIDATES:
        numbers = logits[:, 1] - logits[:, 0]
    elif task.labels is None:
        numbers = logits[:, 0]
    else:
        return [task.labels[index] for index in logits.argmax(dim=1).tolist()]
    return [f"{number:.6f}" for number in numbers.tolist()]


def spans(language_model: LanguageModel, batch: Json) -> list[Span]:
    """Return the best answer within each window of a batch."""
    net_input = batch["net_input"]
    end = language_model.task.source_dictionary.eos()
    scores = span_scores(language_model.model, net_input, end)  # (B, T, 2)
    no_answer = scores[:, 0].sum(-1)  # (B,); <s> stands for no answer
    scores[:, 0] = -math.inf  # <s> is no answer's first or last token
    sums = scores[:, :, :1] + scores[:, None, :, 1]  # (B, T first, T last)
    length = sums.size(1)
    allowed = sums.new_ones(length, length, dtype=torch.bool)  # (T first, T last)
    allowed = allowed.triu().tril(_MAX_ANSWER_LENGTH - 1)
    sums = sums.masked_fill(~allowed, -math.inf)
    best, index = sums.flatten(1).max(1)  # (B,)
    in_passage = passage(net_input["src_tokens"], end)  # (B, T)
    start = in_passage.int().argmax(1)  # (B,)
    columns = (best, no_answer, index // length - start, index % length - start)
    return list(zip(*(column.tolist() for column in columns), strict=True))


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
