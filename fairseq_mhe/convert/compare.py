"""What two models are compared on, pairs of sentences or random words, and how they differ."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import tracked
from fairseq_mhe.convert.moments import Inputs, measure_inputs
from fairseq_mhe.models.families import TRANSLATION
from fairseq_mhe.prepare.data_folder import DataFolder, load_task, open_binary

#: The beam of searches that are compared.
BEAM = 5
#: Pairs of sentences to a batch.
_PAIRS = 50
#: Random sentences, and the tokens of the longest, its end included.
_RANDOM, _LONGEST = 32, 24
#: fairseq's, with "net_input" and "target".
Batch = dict[str, Any]


class LogitDifference(NamedTuple):
    """How far two models' logits are from each other at most, at real target positions."""

    largest: float
    largest_logit: float
    positions: int


@dataclass(frozen=True)
class Material:
    """Batches to compare models with ``source`` on, and to measure what its sublayers read.

    ``compared``: of a split ``subset`` of the folder ``data``, or of random words without one;
    ``measured``: of its training text, empty without a folder.
    """

    source: Source
    task: TranslationTask
    compared: Sequence[Batch]
    measured: Sequence[Batch] = ()
    data: Path | None = None
    subset: str = ""

    @property
    def name(self) -> str:
        """What models are compared on, in words."""
        return f"{self.subset} of {self.data}" if self.data else "random words"

    @property
    def _pad(self) -> int:
        return self.task.target_dictionary.pad()

    def inputs(self) -> dict[str, Inputs]:
        """What each sublayer of the source reads, by its name."""
        batches = tracked(self.measured, "measuring inputs", len(self.measured))
        return measure_inputs(self.source.model, batches, self._pad)

    @torch.inference_mode()
    def difference(self, model: nn.Module) -> LogitDifference:
        """How far a model's logits are from the source's."""
        largest = torch.zeros(())
        largest_logit = torch.zeros(())
        positions = 0
        for batch in tracked(self.compared, "comparing", len(self.compared)):
            inputs = batch["net_input"]
            read = inputs.get("prev_output_tokens", inputs["src_tokens"])  # (B, T)
            real = read.ne(self._pad)
            one = self.source.model(**inputs)[0][real].double()  # (positions, vocabulary)
            other = model(**inputs)[0][real].double()
            # torch's maximum of a NaN and a number is the NaN.
            largest = largest.maximum((one - other).abs().max())
            largest_logit = largest_logit.maximum(one.abs().max())
            positions += len(one)
        return LogitDifference(float(largest), float(largest_logit), positions)

    @torch.inference_mode()
    def loss(self, model: Any) -> float | None:
        """Nats a target token, negative log-likelihood without smoothing; None without data."""
        if self.data is None:
            return None
        total = torch.zeros((), dtype=torch.float64)
        tokens = 0
        for batch in self.compared:
            target: Tensor = batch["target"].flatten()  # (B T,)
            # By the model itself: with an adaptive softmax its output is no logits.
            logs = model.get_normalized_probs(model(**batch["net_input"]), log_probs=True)
            rows = logs.flatten(0, 1).float()  # (B T, vocabulary)
            how: Any = {"ignore_index": self._pad, "reduction": "sum"}
            total += nn.functional.nll_loss(rows, target, **how).double()
            tokens += int(target.ne(self._pad).sum())
        return float(total) / max(1, tokens)

    @torch.inference_mode()
    def search(self, model: Any, beam: int = BEAM) -> list[list[int]]:
        """The best hypothesis of each sentence, as token numbers that end in </s>."""
        how = {"beam_size": beam, "max_len_a": 1.5, "max_len_b": 20}
        generator = SequenceGenerator([model], self.task.target_dictionary, **how)
        best = []
        work = f"translating, beam {beam}"
        for batch in tracked(self.compared, work, len(self.compared)):
            results = generator.generate([model], batch)
            best += [hypotheses[0]["tokens"].tolist() for hypotheses in results]
        return best


def add_data(parser: argparse.ArgumentParser, use: str, sentences: int) -> None:
    """The options for a data folder, with ``use`` as help, and how much of it a command takes."""
    add = parser.add_argument
    add("--data", type=Path, metavar="DATA", help=use)
    help_ = "sentences to take of each split (default: %(default)s)"
    add("--sentences", type=positive, default=sentences, metavar="N", help=help_)


def open_material(
    source: Source,
    data: Path | None,
    sentences: int,
    subset: str = "valid",
    measured: bool = True,
) -> Material:
    """The first ``sentences`` of ``subset`` and of train, or random words without a data folder.

    ``measured``: whether train is wanted. UserError where the data cannot be read, or do not belong
    to the model.
    """
    if data is None:
        return Material(source, source.task(), random_batches(source))
    source.require_translation("--data")
    task = task_of(open_binary(data), source)
    compared = pair_batches(task, source.model, subset, sentences)
    train = pair_batches(task, source.model, "train", sentences) if measured else []
    return Material(source, task, compared, train, data, subset)


def task_of(data: DataFolder, source: Source) -> TranslationTask:
    """The task of a data folder; UserError where it is not of a checkpoint's vocabulary."""
    source.require_translation(f"the data folder {data.folder}")
    task = load_task(data)
    words = len(task.source_dictionary), len(task.target_dictionary)
    if words != source.vocab_sizes:
        own = " and ".join(map(str, words))
        expected = " and ".join(map(str, source.vocab_sizes))
        raise UserError(
            f"{data.folder} does not belong to {source.path}: it has {own} words, the checkpoint "
            f"{expected}; give the data that the model was trained on"
        )
    return task


def pair_batches(
    task: TranslationTask, model: Any, subset: str, count: int
) -> list[Batch]:
    """The first ``count`` pairs of a split that fit into a model's positions, short ones first.

    UserError where the split is missing, or has no such pair.
    """
    try:
        task.load_dataset(subset)
    except (OSError, TypeError):  # of fairseq where one side of a split is missing
        what = f"{task.cfg.data} has no split {subset!r}"
        raise UserError(f"{what}: prepare the data again, or name another") from None
    dataset = task.dataset(subset)
    order = np.arange(len(dataset))
    fitting, _ = dataset.filter_indices_by_size(order, model.max_positions())
    if not len(fitting):
        raise UserError(
            f"{task.cfg.data} has no sentences in {subset!r} that the model has the positions for: "
            "prepare the data again, or name another split"
        )
    pairs = [dataset[index] for index in fitting[:count]]
    pairs.sort(key=lambda pair: len(pair["source"]))
    batches = []
    for start in range(0, len(pairs), _PAIRS):
        batches.append(dataset.collater(pairs[start : start + _PAIRS]))
    return batches


def random_batches(source: Source, sentences: int = _RANDOM) -> list[Batch]:
    """A batch of random words: sources padded on the left, targets on the right, as in fairseq.

    They are no longer than the model has positions for; a language model reads the targets.
    """
    model: Any = source.model
    task = source.task()
    generator = torch.Generator().manual_seed(1)
    positions = model.max_positions()  # of source and target, or of the one text
    both = positions if isinstance(positions, tuple) else [positions]
    longest = min(_LONGEST, *both)
    sides: list[Any] = []
    for dictionary in (task.source_dictionary, task.target_dictionary):
        lengths = torch.randint(1, longest, (sentences,), generator=generator).tolist()
        end = torch.tensor([dictionary.eos()])
        of_words = 4, len(dictionary)  # after the special symbols
        words = [torch.randint(*of_words, (n,), generator=generator) for n in lengths]
        sides += [[torch.cat((each, end)) for each in words], lengths, dictionary]
    dataset = LanguagePairDataset(*sides)
    batch: Batch = dataset.collater([dataset[index] for index in range(sentences)])
    if source.family is not TRANSLATION:
        batch["net_input"] = {"src_tokens": batch["net_input"]["prev_output_tokens"]}
    return [batch]
