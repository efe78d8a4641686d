"""Compare models on sentence pairs or random words: their logits, losses and translations."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from fairseq.utils import split_paths
from torch import Tensor, nn

from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say, tracked
from fairseq_mhe.convert.moments import Inputs, measure_inputs
from fairseq_mhe.models.families import TRANSLATION
from fairseq_mhe.prepare.data_folder import DataFolder, load_task, open_binary

#: Beam size of the searches whose hypotheses are compared.
BEAM = 5
_PAIRS_PER_BATCH = 50
#: Number of random sentences, and the most tokens that one has, </s> included.
_RANDOM, _LONGEST = 32, 24
#: A batch as fairseq's translation task makes it, with "net_input" and "target".
Batch = dict[str, Any]


class LogitDifference(NamedTuple):
    """Largest difference between the logits of a source and those of another model."""

    largest: float
    largest_logit: float  # of the source
    positions: int  # target tokens that were compared, without padding


@dataclass(frozen=True)
class Material:
    """Sentences on which models are compared with ``source``, and on which its inputs are measured.

    ``compared``: the first ``sentences`` of ``data``'s split valid, or random words.
    """

    source: Source
    task: TranslationTask
    compared: Sequence[Batch]
    data: Path | None = None
    sentences: int = 0

    @property
    def name(self) -> str:
        """The sentences on which models are compared, in words."""
        return f"valid of {self.data}" if self.data else "random words"

    @property
    def _pad(self) -> int:
        return self.task.target_dictionary.pad()

    def inputs(self) -> dict[str, Inputs]:
        """Measure the inputs of the source's sublayers, by name, on training text if data exist."""
        model = self.source.model
        batches: list[Batch] = []
        if self.data:
            batches = pair_batches(self.task, model, "train", count=self.sentences)
        shown = tracked(batches, "measuring inputs", len(batches))
        return measure_inputs(model, shown, self._pad)

    @torch.inference_mode()
    def difference(self, model: nn.Module) -> LogitDifference:
        """Compare a model's logits with the source's at all target tokens that are no padding."""
        largest = torch.zeros(())
        largest_logit = torch.zeros(())
        positions = 0
        for batch in tracked(self.compared, "comparing", len(self.compared)):
            inputs = batch["net_input"]
            tokens = inputs.get("prev_output_tokens", inputs["src_tokens"])  # (B, T)
            real = tokens.ne(self._pad)
            expected = self.source.model(**inputs)[0][real].double()  # (positions, V)
            logits = model(**inputs)[0][real].double()  # (positions, V)
            difference = (logits - expected).abs()
            # torch.maximum of NaN and a number is NaN.
            largest = largest.maximum(difference.max())
            largest_logit = largest_logit.maximum(expected.abs().max())
            positions += len(expected)
        return LogitDifference(float(largest), float(largest_logit), positions)

    @torch.inference_mode()
    def loss(self, model: Any) -> float | None:
        """Return the mean negative log-likelihood in nats per target token; None without data."""
        if self.data is None:
            return None
        total = torch.zeros((), dtype=torch.float64)
        tokens = 0
        for batch in self.compared:
            target: Tensor = batch["target"].flatten()  # (B T,)
            output = model(**batch["net_input"])
            # The output of a model with an adaptive softmax is not logits.
            log_probs = model.get_normalized_probs(output, log_probs=True)
            rows = log_probs.flatten(0, 1).float()  # (B T, V)
            total += nn.functional.nll_loss(
                rows, target, ignore_index=self._pad, reduction="sum"
            ).double()
            tokens += int(target.ne(self._pad).sum())
        return float(total) / max(1, tokens)

    @torch.inference_mode()
    def search(self, model: Any, beam: int = BEAM) -> list[list[int]]:
        """Return the best hypothesis of each sentence, as token ids that end in </s>."""
        options = {"beam_size": beam, "max_len_a": 1.5, "max_len_b": 20}
        generator = SequenceGenerator([model], self.task.target_dictionary, **options)
        best = []
        activity = f"translating, beam {beam}"
        for batch in tracked(self.compared, activity, len(self.compared)):
            results = generator.generate([model], batch)
            best += [hypotheses[0]["tokens"].tolist() for hypotheses in results]
        return best


def add_data(parser: argparse.ArgumentParser, use: str, sentences: int) -> None:
    """Add --data with the help text ``use``, and --sentences (None: the default ``sentences``)."""
    add = parser.add_argument
    add("--data", type=Path, metavar="DATA", help=use)
    help_ = f"use the first N sentences of each split (default: {sentences})"
    add("--sentences", type=positive, metavar="N", help=help_)


def open_material(source: Source, data: Path | None, sentences: int) -> Material:
    """Load valid's first ``sentences``, or random words; UserError if the data do not fit."""
    if data is None:
        return Material(source, source.task(), random_batches(source))
    source.require_translation("--data")
    task = task_of(open_binary(data), source)
    compared = pair_batches(task, source.model, "valid", sentences)
    return Material(source, task, compared, data, sentences)


def task_of(data: DataFolder, source: Source, is_known: bool = False) -> TranslationTask:
    """Return the task of a data folder; UserError if its vocabularies are not the checkpoint's.

    ``is_known``: the caller knows that they belong together, for example by a fingerprint.
    """
    source.require_translation(f"the data folder {data.folder}")
    task = load_task(data)
    dictionaries = task.source_dictionary, task.target_dictionary
    sizes = tuple(map(len, dictionaries))
    if sizes != source.vocab_sizes:
        own = " and ".join(map(str, sizes))
        expected = " and ".join(map(str, source.vocab_sizes))
        raise UserError(
            f"{data.folder} does not belong to {source.path}: it has {own} words, the checkpoint "
            f"{expected}; give the data that the model was trained on"
        )
    if not is_known:
        _check_words(task, data, source)
    return task


def _check_words(task: TranslationTask, data: DataFolder, source: Source) -> None:
    """Compare the words with the training's, since two corpora often have equally many.

    Raises UserError if they differ; says so if the training's dictionaries are not there.
    """
    trained_on = source.task_options.get("data")
    if not trained_on:  # fairseq always names it
        return
    folder = Path(split_paths(trained_on)[0])  # of the first shard
    dictionaries = task.source_dictionary, task.target_dictionary
    for language, dictionary in zip(data.languages, dictionaries, strict=True):
        name = f"dict.{language}.txt"
        if not (folder / name).is_file():
            say(
                f"the words of {data.folder} were not compared with those of the training, as "
                f"{folder / name} is not there: make sure that {source.path} was trained on it"
            )
            return
        if Dictionary.load(str(folder / name)) != dictionary:
            raise UserError(
                f"{data.folder} does not belong to {source.path}: its {name} is not that of the "
                f"training, {folder / name}; give the data that the model was trained on"
            )


def pair_batches(
    task: TranslationTask, model: Any, subset: str, count: int
) -> list[Batch]:
    """Return a split's first ``count`` pairs that fit the model, by length; UserError if none."""
    try:
        task.load_dataset(subset)
    except (OSError, TypeError):  # fairseq's, if one side of the split is missing
        problem = f"{task.cfg.data} has no split {subset!r}"
        raise UserError(f"{problem}: prepare the data again") from None
    dataset = task.dataset(subset)
    order = np.arange(len(dataset))
    fitting, _ = dataset.filter_indices_by_size(order, model.max_positions())
    if not len(fitting):
        raise UserError(
            f"{task.cfg.data} has no sentence in {subset!r} that fits the positions of the model: "
            "give another data folder"
        )
    pairs = [dataset[index] for index in fitting[:count]]
    pairs.sort(key=lambda pair: len(pair["source"]))
    batches = []
    for start in range(0, len(pairs), _PAIRS_PER_BATCH):
        batches.append(dataset.collater(pairs[start : start + _PAIRS_PER_BATCH]))
    return batches


def random_dataset(
    seed: int, *sides: tuple[np.ndarray, Dictionary]
) -> LanguagePairDataset:
    """Return random sentences of the given lengths, </s> included: sources, or also targets."""
    parts: list[Any] = []
    for number, (lengths, dictionary) in enumerate(sides):
        random = torch.Generator().manual_seed(seed + number)
        ids = dictionary.nspecial, len(dictionary)
        tokens = torch.randint(*ids, (lengths.sum(),), generator=random)
        sentences = tokens.split(lengths.tolist())
        for sentence in sentences:
            sentence[-1] = dictionary.eos()
        parts += [sentences, lengths, dictionary]
    # The sentences are random already; shuffle=True would depend on numpy's global seed.
    return LanguagePairDataset(*parts, shuffle=False)


def random_batches(source: Source, sentences: int = _RANDOM) -> list[Batch]:
    """Return one batch of random words, with sources padded on the left, targets on the right.

    No sentence is longer than the model's positions. A language model reads the targets only.
    """
    task = source.task()
    longest = min(_LONGEST, np.min(source.model.max_positions()))  # one, or one a side
    sources, targets = np.random.default_rng(1).integers(2, longest + 1, (2, sentences))
    source_side = sources, task.source_dictionary
    target_side = targets, task.target_dictionary
    dataset = random_dataset(1, source_side, target_side)
    batch: Batch = dataset.collater(list(dataset))
    if source.family is not TRANSLATION:
        batch["net_input"] = {"src_tokens": batch["net_input"]["prev_output_tokens"]}
    return [batch]
