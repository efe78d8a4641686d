"""What an engine does: sentences in subwords to hypotheses in subwords, a batch at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs.decoding import Decoding

AUTO, FAIRSEQ, CTRANSLATE2 = ENGINES = ("auto", "fairseq", "ctranslate2")
#: Products of large weights on a CPU; `fairseq_mhe.models.packed` says what ``auto`` is.
PRECISIONS = (FLOAT32, BF16, _) = ("float32", "bf16", "auto")
#: What ``int8`` asks for in their place.
INT8 = "int8"


@dataclass(frozen=True)
class Hypothesis:
    """A translation in subwords with spaces between.

    ``score``: its log probability (natural), its end included, divided by its number of tokens to
    the power of the length penalty.
    """

    subwords: str
    score: float


class Engine(ABC):
    """A loaded model; ``name`` is one of `ENGINES`."""

    name: str

    @abstractmethod
    def translate(
        self, sentences: Sequence[Sequence[str]], decoding: Decoding, nbest: int
    ) -> list[list[Hypothesis]]:
        """The ``nbest`` best hypotheses of each sentence of one batch, best first.

        ``sentences``: the subwords of each, one or more, without the end of the sentence.
        """


@dataclass(frozen=True)
class Loaded:
    """A model ready to translate.

    ``positions``: the most tokens of a source and of a target, their ends included.
    """

    text: TextProcessing
    engine: Engine
    decoding: Decoding
    positions: tuple[int, int]


def batches(sentences: Sequence[Sequence[str]], max_tokens: int) -> Iterator[list[int]]:
    """The indices of sentences of similar lengths together, shortest first.

    A batch has at most ``max_tokens``, ends and padding included; a longer sentence is a batch by
    itself.
    """
    batch: list[int] = []
    for index in sorted(range(len(sentences)), key=lambda index: len(sentences[index])):
        if batch and (len(batch) + 1) * (len(sentences[index]) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
