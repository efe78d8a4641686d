"""Blocks of running text as a language model reads them: what models are compared on."""

from typing import Any

import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.families import ROBERTA
from fairseq_mhe.prepare.data_folder import MASK, TextFolder, model_dictionary

#: Of a masked model's subwords, as in its training.
_MASKED = 0.15
#: Blocks to a batch.
_BATCH = 32


def dictionary_of(data: TextFolder, source: Source) -> Dictionary:
    """The dictionary of a text folder with what the model's task adds, checked against the model.

    Raises:
        UserError: it is of another vocabulary.
    """
    dictionary = model_dictionary(data.dictionary(), source.family is ROBERTA)
    if (len(dictionary),) != source.words:
        raise UserError(
            f"{data.folder} does not belong to {source.path}: its dictionary has "
            f"{len(dictionary)} words with the special ones, the checkpoint {source.words[0]}; "
            "give the data that the model was trained on"
        )
    return dictionary


def text_batches(data: TextFolder, source: Source, subset: str, count: int) -> list[dict[str, Any]]:
    """The first ``count`` blocks of a split, as fairseq's tasks make them, in batches.

    A causal model reads ``</s>`` and the block (B, T), and says the block. A masked one reads
    ``<s>`` and the block with masks, always the same, and says what is masked.

    Raises:
        UserError: the split is missing, or as `dictionary_of`.
    """
    words = dictionary_of(data, source)
    blocks = data_utils.load_indexed_dataset(str(data.binary / subset), words)
    if blocks is None:
        raise UserError(f"{data.binary} has no split {subset!r}: prepare the data again")
    model: Any = source.model
    longest = model.max_positions() - 1
    generator = torch.Generator().manual_seed(1)
    pairs = []
    for index in range(min(count, len(blocks))):
        block = blocks[index][:longest].long()
        if source.family is ROBERTA:
            pairs.append(_masked(block, words, generator))
        else:
            first = torch.tensor([words.eos()])
            pairs.append((torch.cat((first, block[:-1])), block))
    order = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]))
    found = []
    for start in range(0, len(order), _BATCH):
        some = order[start : start + _BATCH]
        read, said = (
            data_utils.collate_tokens([pairs[index][side] for index in some], words.pad())
            for side in (0, 1)
        )
        found.append({"id": torch.tensor(some), "net_input": {"src_tokens": read}, "target": said})
    return found


def _masked(block: Tensor, words: Dictionary, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """``<s>`` and the block with masks, and what is under them with padding elsewhere: (T + 1,)."""
    hidden = torch.rand(len(block), generator=generator) < _MASKED
    hidden &= block != words.eos()
    read = block.masked_fill(hidden, words.index(MASK))
    said = block.masked_fill(~hidden, words.pad())
    first = torch.tensor([words.bos()]), torch.tensor([words.pad()])
    return torch.cat((first[0], read)), torch.cat((first[1], said))
