"""What both engines share: their names, and how sentences become batches.

An engine is a loaded model, with a ``name`` of `ENGINES`. Its method ``translate(sentences,
decoding, nbest)`` takes the subwords of each sentence of one batch, without the end of the
sentence. It returns a list of `Hypothesis` for each, best first.
"""

from collections.abc import Iterator, Sequence

AUTO, FAIRSEQ, CTRANSLATE2 = ENGINES = ("auto", "fairseq", "ctranslate2")
#: Products of large weights on a CPU; `fairseq_mhe.models.packed` says what ``auto`` is.
PRECISIONS = (FLOAT32, BF16, _) = ("float32", "bf16", "auto")
#: What ``int8`` asks for in their place.
INT8 = "int8"
#: Subwords with spaces between, and the score that `translator.Translation` explains.
Hypothesis = tuple[str, float]


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
