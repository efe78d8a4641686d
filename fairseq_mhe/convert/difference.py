"""How far two models are from each other: logits, hypotheses of beam search, and the loss."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

#: Length limits of searches that are compared: at most A times the source's length, plus B.
_MAX_LEN_A, _MAX_LEN_B = 1.5, 20
#: Their beam.
BEAM = 5
#: One of fairseq's, with its "net_input".
Batch = dict[str, Any]


@dataclass(frozen=True)
class LogitDifference:
    """How far two models' logits are from each other at most, at real target positions."""

    largest: float
    largest_logit: float
    positions: int

    @property
    def relative(self) -> float:
        """The difference by the largest logit, or by 1 where that is smaller."""
        return self.largest / max(1.0, self.largest_logit)


@torch.inference_mode()
def logit_difference(
    one: nn.Module, other: nn.Module, batches: Iterable[Batch], pad: int
) -> LogitDifference:
    """Compare the logits of two models over batches of source and (shifted) target."""
    differences, sizes, positions = [], [], 0
    for batch in batches:
        inputs = batch["net_input"]
        real = inputs.get("prev_output_tokens", inputs["src_tokens"]).ne(pad)  # (B, T)
        # (positions, vocabulary) each
        a, b = (model(**inputs)[0][real].double() for model in (one, other))
        differences.append((a - b).abs().max())
        sizes.append(a.abs().max())
        positions += int(real.sum())
    largest, largest_logit = (float(torch.stack(x).max()) for x in (differences, sizes))
    return LogitDifference(largest, largest_logit, positions)


@torch.inference_mode()
def search(
    model: nn.Module,
    task: TranslationTask,
    batches: Iterable[Batch],
    beam: int,
    limit: int | None = None,
) -> dict[int, list[int]]:
    """The best hypothesis of each sentence, by its "id", as token numbers that end in </s>.

    ``limit``: most tokens before it, instead of a number that depends on the source's length.
    """
    a, b = (_MAX_LEN_A, _MAX_LEN_B) if limit is None else (0, limit)
    words = task.target_dictionary
    generator = SequenceGenerator([model], words, beam_size=beam, max_len_a=a, max_len_b=b)
    best = {}
    for batch in batches:
        results = generator.generate([model], batch)
        for index, hypotheses in zip(batch["id"].tolist(), results, strict=True):
            best[index] = hypotheses[0]["tokens"].tolist()
    return best


@torch.inference_mode()
def loss(model: Any, batches: Iterable[Batch], pad: int) -> float:
    """Mean negative log-likelihood of a reference token, in nats, without smoothing."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        target: Tensor = batch["target"]  # (B, T)
        # By the model itself: with an adaptive softmax its output is no logits.
        logs = model.get_normalized_probs(model(**batch["net_input"]), log_probs=True)
        rows = logs.flatten(0, 1).float()  # (B T, vocabulary)
        total += nn.functional.nll_loss(
            rows, target.flatten(), ignore_index=pad, reduction="sum"
        ).double()
        tokens += int(target.ne(pad).sum())
    return float(total) / max(1, tokens)
