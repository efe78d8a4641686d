"""A trained language model: its validation loss, and what it predicts for examples of a task."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils

from fairseq_mhe.common.files import Json
from fairseq_mhe.models.understanding import passage, span_scores
from fairseq_mhe.prepare.tasks import CANDIDATES, Task

#: Most subwords of an answer, the default of BERT's run_squad.py (--max_answer_length).
_MAX_ANSWER_LENGTH = 30
#: Best answer in a window: its score, the score of no answer, its first and last subword.
Span = tuple[float, float, int, int]


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
