"""Sentences to compare models on: those of a data folder, or random ones where there is none."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.manifest import MANIFEST, read_manifest

#: Sentences to a batch.
BATCH = 50


@dataclass(frozen=True)
class BinaryData:
    """What fairseq-preprocess made of a corpus."""

    folder: Path
    source_lang: str
    target_lang: str

    def dictionary(self, lang: str) -> Path:
        """A language's dictionary."""
        return self.folder / f"dict.{lang}.txt"

    def task(self) -> TranslationTask:
        """fairseq's task with the dictionaries loaded.

        Raises:
            UserError: a dictionary cannot be read.
        """
        config = TranslationConfig(
            data=str(self.folder),
            source_lang=self.source_lang,
            target_lang=self.target_lang,
            # References to other parts of a whole configuration by default.
            dataset_impl=None,
            required_seq_len_multiple=1,
            train_subset="train",
        )
        try:
            return TranslationTask.setup_task(config)
        except (OSError, ValueError, IndexError) as error:
            raise UserError(f"the dictionaries in {self.folder} cannot be read: {error}") from None


def open_data(folder: Path) -> BinaryData:
    """A data folder that fairseq-mhe prepare made, or one of fairseq-preprocess itself.

    Raises:
        UserError: it is neither.
    """
    if (folder / MANIFEST).exists():
        manifest = read_manifest(folder)
        data = BinaryData(folder / "bin", manifest["source_lang"], manifest["target_lang"])
    else:
        source, target = _languages(folder)
        data = BinaryData(folder, source, target)
    for lang in (data.source_lang, data.target_lang):
        if not data.dictionary(lang).is_file():
            raise UserError(f"{data.dictionary(lang)} is missing: prepare the data again")
    return data


def task_of(data: Path, source: Source) -> TranslationTask:
    """The task of a data folder, checked against a checkpoint's vocabulary.

    Raises:
        UserError: the folder cannot be read, or is of another vocabulary.
    """
    task = open_data(data).task()
    found = len(task.source_dictionary), len(task.target_dictionary)
    if found != source.words:
        raise UserError(
            f"{data} does not belong to {source.path}: its dictionaries have {found[0]} and {found[1]} words, those of "
            f"the checkpoint {source.words[0]} and {source.words[1]}; give the data that the model was trained on"
        )
    return task


def _languages(folder: Path) -> tuple[str, str]:
    try:
        source, target = data_utils.infer_language_pair(str(folder))
    except OSError:
        source = target = None
    if source is None or target is None:
        raise UserError(
            f"{folder} is no data folder: give one that fairseq-mhe prepare or fairseq-preprocess has made"
        )
    return source, target


def sentence_pairs(
    data: BinaryData, task: TranslationTask, subset: str, count: int
) -> list[dict[str, Any]]:
    """The first ``count`` pairs of a split, as fairseq's collater takes them.

    Raises:
        UserError: the split is not there.
    """
    try:
        task.load_dataset(subset)
    except (OSError, TypeError):  # TypeError: fairseq asks the length of a side that is not there
        raise UserError(
            f"{data.folder} has no split {subset!r}: prepare the data again, or name another"
        ) from None
    dataset = task.dataset(subset)
    return [dataset[index] for index in range(min(count, len(dataset)))]


def batches(
    task: TranslationTask, subset: str, pairs: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Batches of a split's pairs, sentences of similar length together; "id" tells which is which."""
    ordered = sorted(pairs, key=lambda pair: len(pair["source"]))
    collate = task.dataset(subset).collater
    return [collate(ordered[start : start + BATCH]) for start in range(0, len(ordered), BATCH)]


def random_batches(
    task: TranslationTask, sentences: int = 32, longest: int = 24, seed: int = 1
) -> list[dict[str, Any]]:
    """Batches of random words: sources padded on the left, targets on the right, as fairseq does."""
    generator = torch.Generator().manual_seed(seed)
    pad, eos = task.source_dictionary.pad(), task.source_dictionary.eos()

    def sequences(words: int, lengths: Tensor) -> list[Tensor]:
        first = min(4, words - 1)
        return [
            torch.randint(first, words, (int(length),), generator=generator) for length in lengths
        ]

    lengths = torch.randint(1, longest, (2, sentences), generator=generator)
    sources = [
        torch.cat((s, s.new_tensor([eos])))
        for s in sequences(len(task.source_dictionary), lengths[0])
    ]
    targets = [
        torch.cat((t.new_tensor([eos]), t))
        for t in sequences(len(task.target_dictionary), lengths[1])
    ]
    made = []
    for start in range(0, sentences, BATCH):
        source, target = sources[start : start + BATCH], targets[start : start + BATCH]
        inputs = {
            "src_tokens": data_utils.collate_tokens(source, pad, left_pad=True),
            "src_lengths": torch.tensor([len(s) for s in source]),
            "prev_output_tokens": data_utils.collate_tokens(target, pad, left_pad=False),
        }
        made.append({"id": torch.arange(start, start + len(source)), "net_input": inputs})
    return made


def one_or_more(text: str) -> int:
    """A number of sentences (or of anything) on a command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of 1 or more")
    return int(text)
