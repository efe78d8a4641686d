"""What an engine is: sentences in subwords to hypotheses in subwords, a batch at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from fairseq.data import data_utils

from fairseq_mhe.runs.decoding import Decoding


@dataclass(frozen=True)
class Hypothesis:
    """A translation in subwords with spaces between.

    ``score``: its log probability (natural), its end included, divided by its number of tokens to
    the power of the length penalty.
    """

    subwords: str
    score: float


class Engine(ABC):
    """A loaded model; ``name`` is the word that chooses it."""

    name: str

    @abstractmethod
    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` best hypotheses of each sentence of one batch, best first.

        ``sentences``: the subwords of each, one or more, without the end of the sentence.
        """


def most_subwords(sentences: Sequence[Sequence[str]], decoding: Decoding, longest: int) -> int:
    """fairseq's limit of a batch's translations, their ends not counted, by its longest source.

    ``longest``: tokens that a model can say, the end included.
    """
    source = max(map(len, sentences)) + 1
    return max(1, min(int(decoding.max_len_a * source + decoding.max_len_b), longest - 1))


def batches(sentences: Sequence[Sequence[str]], max_tokens: int) -> Iterator[list[int]]:
    """The places of sentences of like lengths together, shortest first.

    A batch has at most ``max_tokens``, each sentence's end and what it is filled up with included,
    as fairseq counts them; a longer sentence is a batch of its own.
    """
    lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    found = data_utils.batch_by_size(
        order,
        num_tokens_fn=lambda place: int(lengths[place]),
        num_tokens_vec=lengths[order],
        max_tokens=max(max_tokens, int(lengths.max(initial=1))),
        required_batch_size_multiple=1,
    )
    for batch in found:
        yield [int(place) for place in batch]
