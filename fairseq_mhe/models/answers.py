"""``--criterion answer_span``: where an answer begins and ends, for ``sentence_prediction``.

Devlin et al. 2019 (arXiv 1810.04805), 4.2 and 4.3: two softmaxes over the positions of the passage
and <s>, which stands for no answer. fairseq has nothing for it.
"""

# No annotations from __future__: fairseq reads the options' types at run time.
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
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
class AnswerSpanConfig(FairseqDataclass):
    """What ``sentence_prediction`` reads of its criterion."""

    classification_head_name: str = field(
        default=ANSWER_HEAD, metadata={"help": "name of the head to use"}
    )
    regression_target: bool = field(
        default=False, metadata={"help": "needed: the first and last token are read as numbers"}
    )


@register_criterion("answer_span", dataclass=AnswerSpanConfig)
class AnswerSpanCriterion(FairseqCriterion):
    """The mean of both ends' cross entropies."""

    def __init__(self, cfg: AnswerSpanConfig, task: Any) -> None:
        super().__init__(task)
        self.head = cfg.classification_head_name
        self.end = task.source_dictionary.eos()

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Called by fairseq; the loss is summed over windows."""
        scores = span_scores(model, sample["net_input"], self.head, self.end)  # (B, T, 2)
        right = sample["target"].long()  # (B, 2)
        loss = functional.cross_entropy(scores, right, reduction="sum") / 2
        count = right.size(0)
        return (
            loss,
            count,
            {
                "loss": loss.data,
                "ntokens": sample["ntokens"],
                "nsentences": count,
                "sample_size": count,
                "ncorrect": (scores.argmax(1) == right).all(1).sum(),
            },
        )

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Called by fairseq: the mean loss of a window in bits, and how many have both ends."""
        total = {
            name: sum(log.get(name, 0) for log in logging_outputs)
            for name in ("loss", "ncorrect", "sample_size")
        }
        size = total["sample_size"]
        metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, round=3)
        metrics.log_scalar("accuracy", 100.0 * total["ncorrect"] / size, size, round=1)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Called by fairseq: they can, across devices."""
        return True
