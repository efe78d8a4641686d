"""What a fine-tuned model says of every example of a scored set; none is lost to batching."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from fairseq import checkpoint_utils, utils

from fairseq_mhe.models.answers import passage, span_scores
from fairseq_mhe.models.heads import ANSWER_HEAD, CLASS_HEAD, WORDS_HEAD
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.prepare.tasks import ANSWERS, CANDIDATES, CHOICE, WORDS
from fairseq_mhe.runs.job import Job

_SCORED_AT_ONCE = 64
#: Subwords of an answer at most, as is usual (BERT's run_squad.py, --max_answer_length).
_LONGEST = 30
#: Of a window: its best answer's score, that of none, the answer's first and last subword there.
Span = tuple[float, float, int, int]


def head_of(form: str) -> str:
    """The name of the head that tasks of a form have."""
    return {ANSWERS: ANSWER_HEAD, WORDS: WORDS_HEAD}.get(form, CLASS_HEAD)


class Fitted:
    """A fine-tuned model with its task."""

    def __init__(self, run: Job, data: TaskFolder, gpu: bool = False) -> None:
        """On a GPU, or on the CPU.

        Raises:
            UserError: the checkpoint cannot be read.
        """
        place = {"data": str(data.binary)}
        models, _, self._task = checkpoint_utils.load_model_ensemble_and_task(
            [str(run.last)], arg_overrides=place
        )
        self._model = models[0].eval()
        self._data, self._gpu = data, gpu
        if gpu:
            self._model.cuda()

    def labels(self, subset: str) -> list[str]:
        """Of each example in order: a label or number; of a candidate, how likely it is right."""
        said: dict[int, str] = {}
        for batch in self._batches(subset):
            said |= dict(zip(batch["id"].tolist(), self._said(batch), strict=True))
        return [said[index] for index in sorted(said)]

    def spans(self, subset: str) -> list[Span]:
        """Of each window in order: the best answer in it."""
        found: dict[int, Span] = {}
        for batch in self._batches(subset):
            found |= dict(zip(batch["id"].tolist(), self._best(batch), strict=True))
        return [found[index] for index in sorted(found)]

    def _batches(self, subset: str) -> Iterator[dict[str, Any]]:
        self._task.load_dataset(subset)
        batches = self._task.get_batch_iterator(
            self._task.dataset(subset),
            max_sentences=_SCORED_AT_ONCE,
            max_positions=self._model.max_positions(),
            required_batch_size_multiple=1,
        ).next_epoch_itr(shuffle=False)
        with torch.inference_mode():
            for batch in batches:
                yield utils.move_to_cuda(batch) if self._gpu else batch

    def _said(self, batch: Mapping[str, Any]) -> list[str]:
        task = self._data.task
        if task.form == CHOICE:
            parts = [
                self._logits(batch[f"net_input{n + 1}"]) for n in range(len(task.labels or ""))
            ]
            logits = torch.cat(parts, dim=1)  # (B, choices)
        else:
            logits = self._logits(batch["net_input"])  # (B, classes)
        if task.form == CANDIDATES:
            return [f"{odds:.6f}" for odds in (logits[:, 1] - logits[:, 0]).tolist()]
        if task.labels is None:
            return [f"{value:.6f}" for value in logits[:, 0].tolist()]
        return [task.labels[index] for index in logits.argmax(dim=1).tolist()]

    def _logits(self, net_input: Mapping[str, Any]) -> torch.Tensor:
        head = head_of(self._data.task.form)
        logits, _ = self._model(**net_input, features_only=True, classification_head_name=head)
        return logits.float()

    def _best(self, batch: Mapping[str, Any]) -> list[Span]:
        net_input, end = batch["net_input"], self._task.source_dictionary.eos()
        scores = span_scores(self._model, net_input, ANSWER_HEAD, end)  # (B, T, 2)
        none = scores[:, 0].sum(-1)  # (B,)
        inside = passage(net_input["src_tokens"], end)  # (B, T)
        scores = scores.masked_fill(~inside.unsqueeze(-1), -math.inf)
        spans = scores[:, :, :1] + scores[:, None, :, 1]  # (B, T first, T last)
        length = spans.size(1)
        allowed = spans.new_ones(length, length, dtype=torch.bool).triu().tril(_LONGEST - 1)
        best, at = spans.masked_fill(~allowed, -math.inf).flatten(1).max(1)  # (B,)
        ahead = inside.int().argmax(1)  # where the passage begins
        first, last = at // length - ahead, at % length - ahead
        rows = zip(best.tolist(), none.tolist(), first.tolist(), last.tolist(), strict=True)
        return list(rows)
