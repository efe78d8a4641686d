"""Random data looks like what fairseq's commands see."""

from __future__ import annotations

import numpy as np
import pytest

from fairseq_mhe.bench.sentences import training_batches, translation_batch
from fairseq_mhe.models.families import make_dictionary

DICTIONARY = make_dictionary(120)
PAD, EOS = DICTIONARY.pad(), DICTIONARY.eos()


@pytest.mark.parametrize("max_tokens", [64, 1024])
def test_training_batches_fill_max_tokens_with_padding_included(max_tokens: int) -> None:
    batches = training_batches(DICTIONARY, max_tokens, 20, seed=3)
    assert len(batches) == 20
    for batch in batches:
        source, target = batch["net_input"]["src_tokens"], batch["target"]
        assert max(source.numel(), target.numel()) <= max_tokens
        assert batch["ntokens"] == target.ne(PAD).sum()
        assert target[target.ne(PAD)].ge(EOS).all()
    filled = [
        max(b["target"].numel(), b["net_input"]["src_tokens"].numel()) / max_tokens
        for b in batches
    ]
    assert np.median(filled) > 0.75


def test_training_batches_have_realistic_lengths() -> None:
    batches = training_batches(DICTIONARY, 4096, 200, seed=3)
    lengths = np.concatenate([batch["net_input"]["src_lengths"].numpy() for batch in batches])
    assert 22 <= np.median(lengths) <= 26
    assert np.log(lengths).std() == pytest.approx(0.68, abs=0.1)
    padding = np.mean([batch["target"].eq(PAD).float().mean().item() for batch in batches])
    assert (
        0.02 < padding < 0.3
    )  # batches are made of similar lengths, but targets differ from their sources


def test_translation_batch_is_padded_on_the_left_and_falls_by_a_tenth() -> None:
    batch = translation_batch(DICTIONARY, sentences=6, length=20, seed=1)
    tokens, lengths = batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"]
    assert tokens.shape == (6, 20)
    assert lengths.tolist() == [20, 20, 19, 19, 18, 18]
    assert tokens[:, -1].eq(EOS).all()
    assert tokens[-1].eq(PAD).tolist() == [True, True] + [False] * 18
