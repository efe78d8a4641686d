"""CUDA graphs find the hypotheses of beam search without graphs; on a GPU if there is one."""

import os
from itertools import chain
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS
from fairseq_mhe.models import decoding_graphs, graphs, transformer
from fairseq_mhe.models.transformer import generates_by_graphs
from tests.fixtures import tape
from tests.fixtures.models import make_batch, make_model, search

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Batches: number of sentences, length of the longest; the last one finds graphs of the first.
SHAPES = ((9, 18), (3, 7), (10, 17))
SEARCHES = ({"min_len": 3, "max_len_b": 20}, {"beam_size": 1, "max_len_b": 4})


@pytest.fixture(autouse=True)
def _on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small steps: a search needs several, with fewer and fewer sentences.
    monkeypatch.setattr(decoding_graphs, "_SENTENCE_MULTIPLE", 2)
    monkeypatch.setattr(decoding_graphs, "_TARGET_MULTIPLE", 8)
    if DEVICE == "cpu":
        monkeypatch.setattr(transformer, "generates_by_graphs", are_allowed)
        monkeypatch.setattr(graphs, "graph_recorder", lambda: tape.record)
        monkeypatch.setattr(decoding_graphs, "half_is_free", lambda: True)


def are_allowed(*_: Any) -> bool:
    return os.environ.get("FAIRSEQ_MHE_CUDA_GRAPHS") != "0"


def found_by(models: list[Any], batch: Any, **options: Any) -> tuple[list[Any], Tensor]:
    """Return the tokens of all hypotheses, and their scores."""
    hypotheses = list(chain.from_iterable(search(models, batch, **options)))
    tokens = [hypothesis["tokens"].tolist() for hypothesis in hypotheses]
    return tokens, torch.stack([hypothesis["score"] for hypothesis in hypotheses])


def models_of(count: int = 2, **options: Any) -> list[Any]:
    options = {"max_target_positions": 64, **options}
    models = [make_model(seed=seed + 1, **options).to(DEVICE) for seed in range(count)]
    for model in models:
        # A larger embedding of </s> ends sentences at different steps.
        model.decoder.embed_tokens.weight.data[model.decoder.dictionary.eos()] *= 3
        model.make_generation_fast_()
    return models


@pytest.mark.parametrize(
    ("kind", "learned"), [*((kind, False) for kind in KINDS), ("mhe_mul", True)]
)
def test_hypotheses_are_those_without_graphs(
    kind: str, learned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 if kind in ("mhe_mul", "mqa") else 1  # each model of an ensemble has its own graphs
    models = models_of(count, attention=kind, decoder_learned_pos=learned)
    for shape in SHAPES if count == 2 else SHAPES[::2]:  # graphs of one batch find another
        batch = {name: x.to(DEVICE) for name, x in make_batch(*shape, seed=sum(shape)).items()}
        for settings in SEARCHES:
            results = []
            for graphs_allowed in "10":
                monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", graphs_allowed)
                with torch.inference_mode(shape == SHAPES[0]):
                    results.append(found_by(models, batch, **settings))
            (tokens, scores), (expected, expected_scores) = results
            assert tokens == expected
            torch.testing.assert_close(scores, expected_scores, rtol=0, atol=1e-5)
    for model in models:
        steps = model.decoder._decoding_graphs.steps
        assert len(steps) >= 2 * count
        if kind == "mqa":  # sentences that have ended take no room
            assert (2, 4, 32, 24) in steps


def test_a_search_in_a_full_gpu_runs_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_graphs, "half_is_free", lambda: False)
    models = models_of()
    found_by(models, {name: x.to(DEVICE) for name, x in make_batch().items()})
    assert not models[0].decoder._decoding_graphs.steps


def test_graphs_run_searches_on_a_gpu_without_attention_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder, tokens = make_model().decoder, Mock(is_cuda=True)
    with torch.no_grad():
        assert not generates_by_graphs(decoder, tokens)  # until generation turns weights off
        decoder.make_generation_fast_()
        assert generates_by_graphs(decoder, tokens)
        assert not generates_by_graphs(decoder, Mock(is_cuda=False))
        assert not generates_by_graphs(Mock(embed_positions=None, need_attn=False), tokens)
        monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "0")
        assert not generates_by_graphs(decoder, tokens)
    monkeypatch.undo()
    assert not generates_by_graphs(decoder, tokens)


def test_steps_of_a_language_model_have_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_graphs, "_KEPT_STEPS", 2)
    models = models_of(arch="transformer_lm_mhe_tiny")
    batch = {name: x.to(DEVICE) for name, x in make_batch().items()}
    results = []
    for graphs_allowed in "10":
        monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", graphs_allowed)
        results.append(found_by(models, batch, min_len=3, max_len_b=20)[0])
    assert results[0] == results[1]
    steps = models[0].decoder._decoding_graphs.steps
    assert [sizes[2:] for sizes in steps] == [(0, 16), (0, 24)]  # the last two
