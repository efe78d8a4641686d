"""What a trained language model says of a data set, batch by batch; no example is left out."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils

from fairseq_mhe.models.understanding import (
    ANSWER_HEAD,
    CLASS_HEAD,
    WORDS_HEAD,
    passage,
    span_scores,
)
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, WORDS, Task
from fairseq_mhe.runs.squad_scores import Answer

#: Subwords of an answer at most, as is usual (BERT's run_squad.py, --max_answer_length).
_LONGEST = 30
#: Of a window: its best answer's score, that of none, the answer's first and last subword there.
Span = tuple[float, float, int, int]
Batch = Mapping[str, Any]


def head_of(form: str) -> str:
    """The name of the head that tasks of a form have."""
    return {ANSWERS: ANSWER_HEAD, WORDS: WORDS_HEAD}.get(form, CLASS_HEAD)


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

    def batches(self, subset: str, sentences: int) -> Iterator[dict[str, Any]]:
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
    def predictions(self, subset: str, predict: Callable[[Any, Batch], list[Any]]) -> list[Any]:
        """What ``predict(self, batch)`` returns of each example, in order."""
        values: dict[int, Any] = {}
        for batch in self.batches(subset, sentences=64):
            values |= zip(batch["id"].tolist(), predict(self, batch), strict=True)
        return [values[index] for index in sorted(values)]


@torch.inference_mode()
def nats_of(checkpoint: Path, data: Path, gpu: bool) -> dict[str, Any]:
    """Mean negative log-likelihood on ``valid``: in nats, of how many subwords.

    A masked model is asked for those that its task masks, drawn by the seed that it was trained
    with, a causal one for all. ``data``: the binary text, wherever it lay in training.
    """
    trained = LanguageModel(checkpoint, data, gpu)
    total = torch.zeros((), dtype=torch.float64)
    subwords = 0
    for batch in trained.batches("valid", sentences=32):
        output = trained.model(**batch["net_input"])  # logits (B, T, vocabulary) first
        target = trained.model.get_targets(batch, output)  # (B, T)
        asked = target.ne(trained.task.source_dictionary.pad())
        scores = trained.model.get_normalized_probs(output, log_probs=True, sample=batch)
        right = scores.float()[asked].gather(-1, target[asked].unsqueeze(-1))
        total -= right.double().sum().cpu()
        subwords += int(asked.sum())
    of = "masked subwords" if hasattr(trained.task, "mask_idx") else "all subwords"
    return {"of": of, "nats": float(total) / subwords, "subwords": subwords}


def labels(task: Task, language_model: LanguageModel, batch: Batch) -> list[str]:
    """A label or number of each example; of a candidate, how likely it is right, in logits."""
    options = {"features_only": True, "classification_head_name": head_of(task.form)}
    parts = []
    for name, value in batch.items():
        if name.startswith("net_input"):  # one, or one for each choice
            parts.append(language_model.model(**value, **options)[0])
    logits = torch.cat(parts, dim=1).float()  # (B, classes or choices)
    if task.form == CANDIDATES:
        return [f"{odds:.6f}" for odds in (logits[:, 1] - logits[:, 0]).tolist()]
    if task.labels is None:
        return [f"{value:.6f}" for value in logits[:, 0].tolist()]
    return [task.labels[index] for index in logits.argmax(dim=1).tolist()]


def spans(language_model: LanguageModel, batch: Batch) -> list[Span]:
    """The best answer within each window."""
    net_input, end = batch["net_input"], language_model.task.source_dictionary.eos()
    scores = span_scores(language_model.model, net_input, ANSWER_HEAD, end)  # (B, T, 2)
    none = scores[:, 0].sum(-1)  # (B,)
    inside = passage(net_input["src_tokens"], end)  # (B, T)
    scores = scores.masked_fill(~inside.unsqueeze(-1), -math.inf)
    sums = scores[:, :, :1] + scores[:, None, :, 1]  # (B, T first, T last)
    length = sums.size(1)
    allowed = sums.new_ones(length, length, dtype=torch.bool).triu().tril(_LONGEST - 1)
    best, at = sums.masked_fill(~allowed, -math.inf).flatten(1).max(1)  # (B,)
    ahead = inside.int().argmax(1)  # where the passage begins
    first, last = at // length - ahead, at % length - ahead
    rows = zip(best.tolist(), none.tolist(), first.tolist(), last.tolist(), strict=True)
    return list(rows)


def best_answers(windows: Sequence[Span], facts: Mapping[str, Any]) -> dict[str, Answer]:
    """Question -> the best answer over all its windows.

    That there is none is judged by the window that says so least (as BERT's run_squad.py).
    ``windows``: the best span of each; ``facts``: of `TaskFolder.examples`.
    """
    best: dict[int, tuple[float, str]] = {}
    none: dict[int, float] = {}
    for (score, nothing, first, last), place in zip(windows, facts["windows"], strict=True):
        question, number, start, _ = place
        none[question] = min(none.get(question, nothing), nothing)
        if question not in best or score > best[question][0]:
            context = facts["contexts"][number]
            begin, end = context["begins"][start + first], context["ends"][start + last]
            best[question] = score, context["text"][begin:end]
    return {
        identity: Answer(best[n][1], none[n] - best[n][0], facts["articles"][n])
        for n, identity in enumerate(facts["questions"])
    }
