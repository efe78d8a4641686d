"""``--criterion answer_span``: where an answer begins and ends, for ``sentence_prediction``.

Devlin et al. 2019 (arXiv 1810.04805), 4.2 and 4.3: two softmaxes over the positions of the passage
and <s>, which stands for no answer. fairseq has nothing for it.
"""

import math
from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionCriterion,
)
from torch import Tensor
from torch.nn import functional

from fairseq_mhe.models.heads import ANSWER_HEAD


def passage(tokens: Tensor, end: int) -> Tensor:
    """Which tokens (B, T) of ``<s> question </s> </s> passage </s>`` are the passage's."""
    ends = tokens == end
    return (ends.cumsum(1) == 2) & ~ends


def span_scores(model: Any, net_input: dict[str, Any], head: str, end: int) -> Tensor:
    """Logits of an answer's first and last token, -inf where none can be: (B, T, 2)."""
    logits, _ = model(**net_input, features_only=True, classification_head_name=head)
    possible = passage(net_input["src_tokens"], end)
    possible[:, 0] = True  # no answer
    scores: Tensor = logits.float().masked_fill(~possible.unsqueeze(-1), -math.inf)
    return scores


@dataclass
class AnswerSpanConfig(SentencePredictionConfig):
    """sentence_prediction's with another head; it needs --regression-target too."""

    classification_head_name: str = ANSWER_HEAD


@register_criterion("answer_span", dataclass=AnswerSpanConfig)
class AnswerSpanCriterion(SentencePredictionCriterion):
    """The mean of both ends' cross entropies."""

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Called by fairseq; the loss is summed over windows, accuracy is of both ends."""
        end = self.task.source_dictionary.eos()
        head = self.classification_head_name
        scores = span_scores(model, sample["net_input"], head, end)  # (B, T, 2)
        right = sample["target"].long()  # (B, 2)
        loss = functional.cross_entropy(scores, right, reduction="sum") / 2
        count = right.size(0)
        logged = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
            "ncorrect": (scores.argmax(1) == right).all(1).sum(),
        }
        return loss, count, logged
