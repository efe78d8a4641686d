"""What models are compared on and conversions measured on: data of the model's sort, or random."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import Board
from fairseq_mhe.convert.difference import Batch, LogitDifference, logit_difference, loss
from fairseq_mhe.convert.moments import Inputs, measure_inputs
from fairseq_mhe.models.families import ROBERTA, TRANSLATION
from fairseq_mhe.prepare.data_folder import (
    MASK,
    DataFolder,
    load_task,
    model_dictionary,
    open_binary,
    open_data,
)
from fairseq_mhe.prepare.manifest import TEXT

#: Sentences to a batch, and blocks of running text.
_BATCH, _BLOCKS = 50, 32
#: Random sentences, and the tokens of one at most, its end included.
_RANDOM, _LONGEST = 32, 24
#: Of a masked model's subwords, as in its training.
_MASKED = 0.15
Item = TypeVar("Item")


@dataclass(frozen=True)
class Material:
    """Batches to compare models with ``source`` on, and to measure its inputs on.

    ``compared``: of the split ``subset`` of the data folder ``name``; without one, of random words.
    ``measured``: of its training text.
    """

    source: Source
    task: TranslationTask
    compared: Sequence[Batch]
    measured: Sequence[Batch] = ()
    name: str | None = None
    subset: str = ""

    @property
    def pad(self) -> int:
        """The number of the padding symbol."""
        return self.task.target_dictionary.pad()

    def inputs(self) -> dict[str, Inputs]:
        """What each sublayer of the source reads, by its name; nothing is known without data."""
        if not self.measured:
            return {}
        batches = tracked(self.measured, "measuring inputs")
        return measure_inputs(self.source.model, batches, self.pad)

    def loss(self, model: nn.Module) -> float | None:
        """Nats per target token; None without data."""
        return loss(model, self.compared, self.pad) if self.name else None

    def difference(self, model: nn.Module) -> LogitDifference:
        """How far a model's logits are from the source's."""
        batches = tracked(self.compared, "comparing")
        return logit_difference(self.source.model, model, batches, self.pad)

    def describe(self) -> str:
        """The sentences, in words."""
        return f"{self.subset} of {self.name}" if self.name else "random words"


def tracked(items: Sequence[Item], work: str) -> Iterator[Item]:
    """The items, with progress shown meanwhile."""
    with Board() as board:
        for done, item in enumerate(items, 1):
            yield item
            board.update(work, done, len(items))


def open_material(
    source: Source,
    data: Path | None,
    sentences: int,
    subset: str = "valid",
    measured: bool = True,
) -> Material:
    """The first ``sentences`` of ``subset`` and of train, or random words without a data folder.

    They are pairs; of a language model, blocks of text. ``measured``: whether train is wanted.

    Raises:
        UserError: the data cannot be read, or do not belong to the model.
    """
    if data is None:
        return Material(source, source.task(), random_batches(source))
    read: Callable[[str], list[Batch]]
    if source.family is TRANSLATION:
        task = task_of(open_binary(data), source)

        def read(split: str) -> list[Batch]:
            return batches(task, split, sentence_pairs(task, split, sentences, source.model))
    else:
        text, task = open_data(data, TEXT), source.task()

        def read(split: str) -> list[Batch]:
            return text_batches(text, source, split, sentences)

    train = read("train") if measured else []
    return Material(source, task, read(subset), train, str(data), subset)


def task_of(data: DataFolder, source: Source) -> TranslationTask:
    """The task of a data folder, checked against a checkpoint's vocabulary.

    Raises:
        UserError: the dictionaries cannot be read, or are of another vocabulary.
    """
    source.only_translation(f"the data folder {data.folder}")
    task = load_task(data)
    words = len(task.source_dictionary), len(task.target_dictionary)
    _check_vocabulary(data.folder, words, source)
    return task


def dictionary_of(data: DataFolder, source: Source) -> Dictionary:
    """The dictionary of a text folder with what the model's task adds, checked likewise.

    Raises:
        UserError: it is of another vocabulary.
    """
    dictionary = model_dictionary(data.dictionary(), source.family is ROBERTA)
    _check_vocabulary(data.folder, (len(dictionary),), source)
    return dictionary


def _check_vocabulary(folder: Path, words: tuple[int, ...], source: Source) -> None:
    if words != source.words:
        own, expected = (" and ".join(map(str, counts)) for counts in (words, source.words))
        raise UserError(
            f"{folder} does not belong to {source.path}: it has {own} words, the checkpoint "
            f"{expected}; give the data that the model was trained on"
        )


def sentence_pairs(task: TranslationTask, subset: str, count: int, model: Any) -> list[Batch]:
    """The first ``count`` pairs of a split that ``model`` has the positions for.

    They are as fairseq's collater takes them.

    Raises:
        UserError: the split is missing, or has no such pair.
    """
    try:
        task.load_dataset(subset)
    except (OSError, TypeError):  # TypeError: fairseq asks the length of a side that is missing
        raise UserError(
            f"{task.cfg.data} has no split {subset!r}: prepare the data again, or name another"
        ) from None
    dataset = task.dataset(subset)
    fitting, _ = dataset.filter_indices_by_size(np.arange(len(dataset)), model.max_positions())
    if not len(fitting):
        raise UserError(
            f"{task.cfg.data} has no sentences in {subset!r} that the model has the positions for: "
            "prepare the data again, or name another split"
        )
    return [dataset[index] for index in fitting[:count]]


def batches(task: TranslationTask, subset: str, pairs: Sequence[Batch]) -> list[Batch]:
    """A split's pairs in batches of similar length; "id" tells which is which."""
    ordered = sorted(pairs, key=lambda pair: len(pair["source"]))
    collate = task.dataset(subset).collater
    return [collate(part) for part in _parts(ordered, _BATCH)]


def _parts(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def text_batches(data: DataFolder, source: Source, subset: str, count: int) -> list[Batch]:
    """The first ``count`` blocks of a split, as fairseq's tasks make them, in batches.

    A causal model reads ``</s>`` and the block (B, T), and predicts the block. A masked one reads
    ``<s>`` and the block with masks, always the same, and predicts what is masked.

    Raises:
        UserError: the split is missing, or as `dictionary_of`.
    """
    words = dictionary_of(data, source)
    blocks = data_utils.load_indexed_dataset(str(data.binary / subset), words)
    if blocks is None:
        raise UserError(f"{data.binary} has no split {subset!r}: prepare the data again")
    model: Any = source.model
    generator = torch.Generator().manual_seed(1)
    items = []  # the number, what is read and what is predicted
    for index in range(min(count, len(blocks))):
        block = blocks[index][: model.max_positions() - 1].long()
        if source.family is ROBERTA:
            items.append((index, *_masked(block, words, generator)))
        else:
            items.append((index, torch.cat((torch.tensor([words.eos()]), block[:-1])), block))
    items.sort(key=lambda item: len(item[1]))
    result = []
    for part in _parts(items, _BLOCKS):
        ids, inputs, targets = zip(*part, strict=True)
        tokens, target = (data_utils.collate_tokens(x, words.pad()) for x in (inputs, targets))
        batch = {"net_input": {"src_tokens": tokens}, "target": target}  # (B, T) each
        result.append({"id": torch.tensor(ids), **batch})
    return result


def _masked(
    block: Tensor, words: Dictionary, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """``<s>`` and the block with masks, and what is under them with padding elsewhere: (T + 1,)."""
    hidden = torch.rand(len(block), generator=generator) < _MASKED
    hidden &= block != words.eos()
    inputs = block.masked_fill(hidden, words.index(MASK))
    target = block.masked_fill(~hidden, words.pad())
    first = torch.tensor([words.bos()]), torch.tensor([words.pad()])
    return torch.cat((first[0], inputs)), torch.cat((first[1], target))


def random_batches(source: Source, sentences: int = _RANDOM) -> list[Batch]:
    """Batches of random words: sources padded on the left, targets on the right, as in fairseq.

    They are no longer than the model has positions for; a language model reads one text.
    """
    model: Any = source.model
    task, generator = source.task(), torch.Generator().manual_seed(1)
    positions = model.max_positions()  # of source and target, or of the one text
    longest = min(_LONGEST, *(positions if isinstance(positions, tuple) else [positions]))
    sides: list[Any] = []
    for dictionary in (task.source_dictionary, task.target_dictionary):
        lengths = torch.randint(1, longest, (sentences,), generator=generator).tolist()
        first, end = min(4, len(dictionary) - 1), torch.tensor([dictionary.eos()])
        words = [
            torch.randint(first, len(dictionary), (n,), generator=generator) for n in lengths
        ]
        sides += [[torch.cat((each, end)) for each in words], lengths, dictionary]
    dataset = LanguagePairDataset(*sides)
    parts = _parts(range(sentences), _BATCH)
    result: list[Batch] = [
        dataset.collater([dataset[index] for index in part]) for part in parts
    ]
    if source.family is not TRANSLATION:
        for batch in result:
            batch["net_input"] = {"src_tokens": batch["net_input"]["prev_output_tokens"]}
    return result
