"""Shuffle + Random: what is replaced, what is asked, the loss, and what is refused."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import BaseWrapperDataset, ListDataset
from fairseq.dataclass import FairseqDataclass

from fairseq_mhe.common.errors import ErrorExit
from fairseq_mhe.models.shuffle_random import (
    NOT_ASKED,
    ShuffleRandomConfig,
    ShuffleRandomCriterion,
    ShuffleRandomDataset,
    ShuffleRandomTask,
)
from tests.fixtures.language import LM, ROBERTA, language_options, make_language_model, sentences
from tests.fixtures.models import make_dictionary

#: <s>, 500 words of one kind each, </s>, and an unknown word.
BLOCK = torch.cat((torch.tensor([0]), torch.arange(10, 510), torch.tensor([2, 3])))
#: Those of a dictionary that random words are drawn from: none is in the block.
OTHERS = np.concatenate(([4], np.arange(1000, 1500)))


class Blocks(BaseWrapperDataset):
    def __init__(self) -> None:
        self.dataset = [BLOCK] * 20

    def set_epoch(self, epoch: int) -> None:
        pass


def make(share: float = 0.1, seed: int = 1, words: Any = OTHERS) -> ShuffleRandomDataset:
    return ShuffleRandomDataset(Blocks(), words, share, seed)


def test_classes_say_what_was_done() -> None:
    counts = np.zeros(3)
    for block in make():
        tokens, classes = block
        word = BLOCK >= 4
        assert classes[~word].eq(NOT_ASKED).all()
        assert torch.equal(tokens[~word], BLOCK[~word])
        assert torch.equal(tokens[classes == 0], BLOCK[classes == 0])
        assert np.isin(tokens[classes == 2].numpy(), OTHERS).all()
        shuffled = tokens[classes == 1]
        assert np.isin(shuffled.numpy(), BLOCK[word].numpy()).all()  # no special symbol
        assert (shuffled != BLOCK[classes == 1]).float().mean() > 0.8
        counts += np.bincount(classes[word].numpy(), minlength=3)
    shares = counts / counts.sum()  # of 10,000 tokens
    np.testing.assert_allclose(shares, [0.81, 0.1, 0.09], atol=0.012)


def test_what_is_drawn_is_of_seed_epoch_and_block() -> None:
    one, other = make(), make()
    assert torch.equal(one[3], other[3])
    assert not torch.equal(one[3], one[4])
    assert not torch.equal(one[3], make(seed=2)[3])
    other.set_epoch(2)
    assert not torch.equal(one[3], other[3])


def test_few_blocks_are_drawn_anew_in_each_epoch() -> None:
    """Fewer than a cache would keep from epoch to epoch."""
    made = task(seed=1)
    blocks = ListDataset([BLOCK[:40]] * 3, [40] * 3)
    made._load_dataset_split = lambda *_: blocks  # type: ignore[method-assign]
    made.load_dataset("train")
    dataset = made.dataset("train")
    drawn = []
    for epoch in (1, 2, 1):
        dataset.set_epoch(epoch)
        drawn.append([dataset[index] for index in range(3)])
    for one, other, again in zip(*drawn, strict=True):
        for name in ("net_input.src_tokens", "target"):
            assert not torch.equal(one[name], other[name])
            assert torch.equal(one[name], again[name])


def task(**options: Any) -> ShuffleRandomTask:
    return ShuffleRandomTask(ShuffleRandomConfig(**options), make_dictionary())


def test_the_loss_is_cross_entropy_of_what_is_asked() -> None:
    model = make_language_model(ROBERTA[0], objective="shuffle_random", dropout=0.0)
    tokens = sentences()  # (5, 9)
    target = torch.randint(0, 3, tokens.shape, generator=torch.Generator().manual_seed(1))
    target[tokens < 4] = NOT_ASKED
    sample = {"net_input": {"src_tokens": tokens}, "target": target, "ntokens": 9, "nsentences": 5}
    criterion = ShuffleRandomCriterion(FairseqDataclass(), task())
    loss, count, logged = criterion(model, sample)
    logits = model(tokens)[0]
    assert logits.shape == (5, 9, 3)
    expected, right = torch.zeros(()), 0
    for row, column in (target >= 0).nonzero().tolist():
        said, wanted = logits[row, column], target[row, column]
        expected = expected - (said.exp() / said.exp().sum()).log()[wanted]
        right += int(said.argmax() == wanted)
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-4)
    assert count == (tokens >= 4).sum() == logged["sample_size"]
    assert logged["correct"] == right


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ErrorExit, match="--task shuffle_random needs --criterion shuffle_random, "):
        task().build_criterion(SimpleNamespace(_name="masked_lm"))
    with pytest.raises(ErrorExit, match="--criterion shuffle_random needs --task shuffle_random"):
        ShuffleRandomCriterion(FairseqDataclass(), SimpleNamespace())
    with pytest.raises(ErrorExit, match="--task shuffle_random needs an --arch of roberta_mhe"):
        task().build_model(argparse.Namespace(**language_options(LM[0])))
    for share in (0.0, 1.0, -0.5):
        with pytest.raises(
            ErrorExit, match=r"--manipulate-prob .*: give more than 0 and less than"
        ):
            task(manipulate_prob=share)
