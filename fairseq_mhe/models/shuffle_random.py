"""``--task shuffle_random``, ``--criterion shuffle_random``: pre-training without a vocabulary.

Shuffle + Random (Yamaguchi, Chrysostomou, Margatina & Aletras 2021, arXiv 2109.01819): each token
is unchanged (0), from another place of the text (1) or a random one (2), and the model says which.
HashFormers' code has it too (Xue & Aletras 2022, arXiv 2210.07904). As in both codes, a
token of a share p is replaced by the token in its place of a permutation of the text, where that is
no special symbol, and of the others a share p by a random one; special symbols are not asked for.
Here the permutation is of each block, not of a batch, and the random tokens are entries of the
dictionary, whatever the embedding: real words, where HashFormers' code draws random bits.
"""

# No annotations from __future__: fairseq reads the options' types at run time.
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import (
    BaseWrapperDataset,
    Dictionary,
    IdDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RightPadDataset,
    SortDataset,
    data_utils,
)
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.common.errors import ErrorExit

NAME = "shuffle_random"
CLASSES = ("unchanged", "shuffled", "random")
#: Of special symbols, which are not asked for.
NOT_ASKED = -100
BITS = 1 / np.log(2)


class ThreeClasses(nn.Module):
    """What a model says of each token: dropout, and a linear layer to the three classes."""

    def __init__(self, embed_dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(embed_dim, len(CLASSES))

    def forward(self, features: Tensor, masked_tokens: Tensor | None = None, **_: Any) -> Tensor:
        """(B, T, C) -> (B, T, 3); called by fairseq's encoder, in place of its output layer."""
        if masked_tokens is not None:
            raise ErrorExit(
                "this model has no output vocabulary, which --criterion masked_lm is for: give "
                f"--task {NAME} --criterion {NAME}, or --embedding table or hash_emb"
            )
        return self.classes(self.dropout(features))


class ShuffleRandomDataset(BaseWrapperDataset):
    """Blocks of tokens (T,) as pairs (2, T): with some replaced, and the classes of all.

    What is drawn depends on the seed, the epoch and the block's number alone.
    """

    def __init__(self, dataset: Any, words: Any, share: float, seed: int) -> None:
        """``words``: the tokens that random ones are drawn from, the first word's first."""
        super().__init__(dataset)
        self.words, self.first_word = words, words[0]
        self.share, self.seed, self.epoch = share, seed, 0
        self._last: tuple[tuple[int, int], Tensor] | None = None

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """Whether blocks keep their lengths from epoch to epoch."""
        return True

    def set_epoch(self, epoch: int, **_: Any) -> None:
        """Called by fairseq."""
        super().set_epoch(epoch)
        self.epoch = epoch

    def __getitem__(self, index: int) -> Tensor:
        # A sample asks for its pair several times, one after another.
        now = (self.epoch, int(index))
        if self._last is None or self._last[0] != now:
            self._last = now, self._drawn(index)
        return self._last[1]

    def _drawn(self, index: int) -> Tensor:
        draw = np.random.default_rng((self.seed, self.epoch, index))
        tokens = self.dataset[index].numpy()  # (T,)
        is_word = tokens >= self.first_word
        shuffled = draw.permutation(tokens)
        from_elsewhere = is_word & (draw.random(len(tokens)) < self.share)
        random = is_word & ~from_elsewhere & (draw.random(len(tokens)) < self.share)
        replaced = np.where(from_elsewhere & (shuffled >= self.first_word), shuffled, tokens)
        replaced[random] = draw.choice(self.words, random.sum())
        classes = np.where(is_word, from_elsewhere + 2 * random, NOT_ASKED)
        return torch.from_numpy(np.stack((replaced, classes)))


class _Row(BaseWrapperDataset):
    """One row of each pair."""

    def __init__(self, dataset: Any, row: int) -> None:
        super().__init__(dataset)
        self.row = row

    def __getitem__(self, index: int) -> Tensor:
        found: Tensor = self.dataset[index][self.row]
        return found


@dataclass
class ShuffleRandomConfig(MaskedLMConfig):
    """fairseq's options of masked_lm, of which those of masks are not used, and ours."""

    manipulate_prob: float = field(
        default=0.1,
        metadata={
            "help": "probability with which a token is replaced by one of another place and, "
            "where it is not, by a random one"
        },
    )


@register_task(NAME, dataclass=ShuffleRandomConfig)
class ShuffleRandomTask(MaskedLMTask):
    """fairseq's masked_lm with other inputs and targets, from the same data."""

    #: Of targets that are not asked for.
    ignored = NOT_ASKED

    def __init__(self, cfg: ShuffleRandomConfig, dictionary: Dictionary | None = None) -> None:
        if not 0 < cfg.manipulate_prob < 1:
            raise ErrorExit(
                f"--manipulate-prob {cfg.manipulate_prob:g}: give more than 0 and less than 1"
            )
        super().__init__(cfg, dictionary)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """A model that says three classes, which its options remember."""
        if OmegaConf.is_config(cfg):
            with open_dict(cfg):
                cfg.objective = NAME
        else:
            cfg.objective = NAME
        model = super().build_model(cfg, from_checkpoint)
        if not any(isinstance(module, ThreeClasses) for module in model.modules()):
            raise ErrorExit(f"--task {NAME} needs an --arch of roberta_mhe, which has its classes")
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """The criterion of the same name."""
        if cfg._name != NAME:
            raise ErrorExit(f"--task {NAME} needs --criterion {NAME}, not {cfg._name}")
        return super().build_criterion(cfg, from_checkpoint)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **_: Any) -> None:
        """Called by fairseq."""
        blocks = self._load_dataset_split(split, epoch, combine)
        share, seed = self.cfg.manipulate_prob, self.cfg.seed
        words = np.setdiff1d(
            np.arange(self.dictionary.nspecial, len(self.dictionary)), [self.mask_idx]
        )
        # Not in fairseq's LRUCacheDataset, which would keep pairs from epoch to epoch.
        pairs = ShuffleRandomDataset(blocks, words, share, seed)
        tokens, classes = _Row(pairs, 0), _Row(pairs, 1)
        with data_utils.numpy_seed(seed):
            order = np.random.permutation(len(blocks))
        inputs = {
            "src_tokens": RightPadDataset(tokens, pad_idx=self.dictionary.pad()),
            "src_lengths": NumelDataset(tokens, reduce=False),
        }
        samples = {
            "id": IdDataset(),
            "net_input": inputs,
            "target": RightPadDataset(classes, pad_idx=NOT_ASKED),
            "nsentences": NumSamplesDataset(),
            "ntokens": NumelDataset(tokens, reduce=True),
        }
        dataset = NestedDictionaryDataset(samples, sizes=[blocks.sizes])
        self.datasets[split] = SortDataset(dataset, sort_order=[order, blocks.sizes])


@register_criterion(NAME, dataclass=FairseqDataclass)
class ShuffleRandomCriterion(FairseqCriterion):
    """Cross-entropy of the three classes over all tokens that are words."""

    def __init__(self, cfg: FairseqDataclass, task: Any) -> None:
        if not isinstance(task, ShuffleRandomTask):
            raise ErrorExit(f"--criterion {NAME} needs --task {NAME}")
        super().__init__(task)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The sum of the losses, of how many tokens, and what is logged."""
        logits = model(**sample["net_input"])[0]  # (B, T, 3)
        target = sample["target"]  # (B, T)
        asked = target.ne(NOT_ASKED)
        loss = F.cross_entropy(
            logits[asked].float(), target[asked], reduction="sum" if reduce else "none"
        )
        count = int(asked.sum())
        logged = {
            "loss": loss.data.sum(),
            "correct": logits.argmax(-1).eq(target).sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": count,
        }
        return loss, count, logged

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Loss in bits a token, as fairseq's are, and accuracy in percent."""
        loss, correct, count = (
            sum(logged.get(name, 0) for logged in logging_outputs)
            for name in ("loss", "correct", "sample_size")
        )
        metrics.log_scalar("loss", loss / count * BITS, count, round=3)
        metrics.log_scalar("accuracy", 100.0 * correct / count, count, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Whether they can, across devices."""
        return True
