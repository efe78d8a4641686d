"""Heads of a masked language model for tasks that ask for more than a class of a text.

Both are fairseq's classification head (dropout, linear, tanh, dropout, linear) on other features,
so that checkpoints with them load as those with its own do.
"""

from typing import Any

import torch
from fairseq.models.roberta.model import RobertaClassificationHead
from torch import Tensor

#: The names by which heads are asked for: the first is fairseq's.
CLASS_HEAD, ANSWER_HEAD, WORDS_HEAD = (
    "sentence_classification_head",
    "answer_head",
    "words_head",
)


class AnswerHead(RobertaClassificationHead):
    """How likely an answer begins and ends at each position (Devlin et al. 2019, 4.2)."""

    def forward(self, features: Tensor, **_: Any) -> Tensor:
        """(B, T, C) -> (B, T, 2)."""
        return super().forward(features.unsqueeze(1))  # its "first token" is every one


class WordsHead(RobertaClassificationHead):
    """A class of two spans: of <s> and the mean of each span (as SuperGLUE's baseline for WiC)."""

    def __init__(self, input_dim: int, *args: Any, **options: Any) -> None:
        super().__init__(3 * input_dim, *args, **options)

    def forward(self, features: Tensor, spans: Tensor, **_: Any) -> Tensor:
        """Features (B, T, C), and first and last position of two spans (B, 4) -> (B, classes)."""
        places = torch.arange(features.size(1), device=features.device)  # (T,)
        first, last = spans.view(-1, 2, 2, 1).unbind(2)  # (B, 2, 1)
        inside = ((places >= first) & (places <= last)).to(features)  # (B, 2, T)
        means = inside @ features / inside.sum(-1, keepdim=True)  # (B, 2, C)
        read = torch.cat([features[:, :1], means], dim=1).flatten(1)  # (B, 3 C)
        return super().forward(read.unsqueeze(1))


#: Name -> the head, where it is not fairseq's own.
HEADS = {ANSWER_HEAD: AnswerHead, WORDS_HEAD: WordsHead}
