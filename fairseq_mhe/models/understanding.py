"""Language understanding beyond one class per text: answer spans, and words in context."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.criterions import sentence_prediction as criterion
from fairseq.data import RawLabelDataset
from fairseq.models.roberta.model import RobertaClassificationHead
from fairseq.tasks import register_task
from fairseq.tasks import sentence_prediction as stock
from torch import Tensor
from torch.nn import functional

ANSWER_HEAD = "answer_head"
WORDS_HEAD = "words_head"


class AnswerHead(RobertaClassificationHead):
    """Logits of an answer's beginning and end at each position (Devlin et al. 2019, 4.2)."""

    def forward(self, features: Tensor, **_: Any) -> Tensor:
        """features (B, T, C) -> logits (B, T, 2)."""
        return super().forward(features.unsqueeze(1))  # fairseq reads [:, 0], here all T


class WordsHead(RobertaClassificationHead):
    """Classifies two spans by <s> and the mean of each span, as SuperGLUE's baseline for WiC."""

    def __init__(self, input_dim: int, *args: Any) -> None:
        super().__init__(3 * input_dim, *args)

    def forward(self, features: Tensor, spans: Tensor, **_: Any) -> Tensor:
        """features (B, T, C), ``spans`` (B, 4): first and last of two spans -> (B, classes)."""
        positions = torch.arange(features.size(1), device=features.device)  # (T,)
        first, last = spans.view(-1, 2, 2, 1).unbind(2)  # (B, 2, 1)
        inside = (positions >= first) & (positions <= last)  # (B, 2, T)
        weights = inside.to(features)
        means = weights @ features / weights.sum(-1, keepdim=True)  # (B, 2, C)
        inputs = torch.cat([features[:, :1], means], dim=1)  # (B, 3, C)
        return super().forward(inputs.flatten(1).unsqueeze(1))


HEADS = {ANSWER_HEAD: AnswerHead, WORDS_HEAD: WordsHead}


def passage(tokens: Tensor, end: int) -> Tensor:
    """Return which tokens (B, T) of ``<s> question </s> </s> passage </s>`` are in the passage."""
    ends = tokens == end
    return (ends.cumsum(1) == 2) & ~ends  # after the second </s>


def span_scores(model: Any, net_input: dict[str, Any], end: int) -> Tensor:
    """Return logits (B, T, 2) of an answer's first and last token, -inf outside the passage."""
    logits, _ = model(
        **net_input, features_only=True, classification_head_name=ANSWER_HEAD
    )
    possible = passage(net_input["src_tokens"], end)  # (B, T)
    possible[:, 0] = True  # <s> means that the passage has no answer
    return logits.float().masked_fill(~possible.unsqueeze(-1), -math.inf)


@register_criterion("answer_span", dataclass=criterion.SentencePredictionConfig)
class AnswerSpanCriterion(criterion.SentencePredictionCriterion):
    """The mean cross entropy of an answer's first and last token (Devlin et al. 2019, 4.2 and 4.3).

    It needs --regression-target and --classification-head-name answer_head.
    """

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Return the loss summed over B windows, B, and logs; ``ncorrect``: both ends are right."""
        end = self.task.source_dictionary.eos()
        scores = span_scores(model, sample["net_input"], end)  # (B, T, 2)
        target = sample["target"].long()  # (B, 2)
        loss = functional.cross_entropy(scores, target, reduction="sum") / 2
        correct = (scores.argmax(1) == target).all(1)  # (B,)
        count = len(target)
        logged = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
            "ncorrect": correct.sum(),
        }
        return loss, count, logged


@register_task("sentence_prediction_of_words", dataclass=stock.SentencePredictionConfig)
class WordsPredictionTask(stock.SentencePredictionTask):
    """Sentence prediction that also passes ``spans`` (B, 4), first and last token of two words."""

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Load fairseq's data set, and add the spans in DATA/spans/SPLIT.spans to its inputs."""
        dataset = super().load_dataset(split, combine, **kwargs)
        path = Path(self.cfg.data, "spans", f"{split}.spans")
        spans = np.loadtxt(path, int, ndmin=2).tolist()
        nested = getattr(dataset, "dataset", dataset)  # a SortDataset wraps it
        nested.defn["net_input.spans"] = RawLabelDataset(spans)
        return dataset
