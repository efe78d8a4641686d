"""CUDA graphs find the hypotheses of beam search without graphs; on a GPU if there is one."""

import copy
from itertools import chain
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models import decoding_graphs, recording
from fairseq_mhe.models.decoding_graphs import generates_by_graphs
from tests.fixtures import tape
from tests.fixtures.language import ADAPTIVE, make_language_model
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
        tape.pretend_to_be_a_gpu(monkeypatch)


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
            assert (2, 4, 32, 24) in {step.shape for step in steps}


def test_a_search_in_a_full_gpu_runs_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    tape.set_memory(monkeypatch, total=2, used=1)
    models = models_of()
    found_by(models, batch_of(5, 7))
    assert not models[0].decoder._decoding_graphs.steps


def test_graphs_of_old_searches_leave_their_memory_to_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Graphs hold 60 bytes of 100, which torch keeps for new ones."""
    tape.set_memory(monkeypatch, total=100, cached=60)
    (model,) = models_of(1)
    for shape in ((3, 7), (9, 18)):
        forced_logits(model, batch_of(*shape))
        model.decoder._decoding_graphs.recorder.pool_bytes = 60
        assert model.decoder._decoding_graphs.steps


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
    assert [step.shape[2:] for step in steps] == [(0, 16), (0, 24)]  # the last two


class Forced:
    """A search whose words are given: decodes a batch step by step."""

    def __init__(self, model: Any, batch: dict[str, Tensor]) -> None:
        self.decoder = model.decoder
        self.state: dict[Any, Any] = {}
        self.memory = None
        if hasattr(model, "encoder"):
            self.memory = model.encoder(batch["src_tokens"], batch["src_lengths"])
        seed = int(batch["src_tokens"].sum())
        words = torch.Generator().manual_seed(seed)
        shape = len(batch["src_tokens"]), 20
        self.tokens = torch.randint(4, 44, shape, generator=words).to(DEVICE)
        self.length = 0

    def step(self) -> Tensor:
        """Return the logits (N, 1, V) of one more position."""
        self.length += 1
        tokens = self.tokens[:, : self.length]
        logits, _ = self.decoder(tokens, encoder_out=self.memory, incremental_state=self.state)
        return logits


def batch_of(sentences: int, longest: int, seed: int = 0) -> dict[str, Tensor]:
    return {name: x.to(DEVICE) for name, x in make_batch(sentences, longest, seed).items()}


def forced_logits(model: Any, *batches: dict[str, Tensor]) -> list[Tensor]:
    """Return the logits of 20 steps of one search for each batch; the searches take turns."""
    with torch.no_grad():
        searches = [Forced(model, batch) for batch in batches]
        steps = [[search.step() for search in searches] for _ in range(20)]
    return [torch.cat(logits, dim=1) for logits in zip(*steps, strict=True)]


def assert_decodes_as_without_graphs(
    monkeypatch: pytest.MonkeyPatch, model: Any, *batches: dict[str, Tensor]
) -> None:
    results = []
    for graphs_allowed in "10":
        monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", graphs_allowed)
        results.append(forced_logits(model, *batches))
    tolerance = 1e-4 if DEVICE == "cuda" else 1e-5  # a GPU adds up in another order
    torch.testing.assert_close(*results, rtol=0, atol=tolerance)
    monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "1")


def test_searches_of_one_shape_that_take_turns_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = models_of(1)
    batches = [batch_of(3, 7, seed) for seed in (1, 2)]
    assert_decodes_as_without_graphs(monkeypatch, model, *batches)
    recorded = len(model.decoder._decoding_graphs.steps)
    assert recorded == 6  # for 8, 16 and 24 positions
    assert_decodes_as_without_graphs(monkeypatch, model, *batches)  # by the same graphs
    assert len(model.decoder._decoding_graphs.steps) == recorded


def test_an_infinity_of_an_earlier_search_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = models_of(1)
    with torch.no_grad():
        overflown = Forced(model, batch_of(4, 15))
        overflown.memory["encoder_out"][0].fill_(torch.inf)
        for _ in range(3):
            assert overflown.step().isnan().all()
        del overflown
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 12))
    assert len(model.decoder._decoding_graphs.steps) == 3  # the same shapes


def test_a_copy_of_a_model_has_graphs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of --store-ema."""
    (model,) = models_of(1)
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 7))
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.mul_(1.1)
    assert_decodes_as_without_graphs(monkeypatch, copied, batch_of(3, 7))
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 7))


def test_weights_that_move_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    (model,) = models_of(1)
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 7))
    for weight in model.parameters():
        weight.data = 1.1 * weight.data
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 7))


@pytest.mark.parametrize("length", [8, 16])
def test_a_search_goes_on_without_graphs_if_a_recording_runs_out_of_memory(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    record = recording.Recorder.record

    def full(self: Any, work: Any) -> Any:
        tries.append(work)
        if len(tries) >= length // 8:
            raise torch.OutOfMemoryError("the GPU is full")
        return record(self, work)

    monkeypatch.setattr(recording.Recorder, "record", full)
    models = models_of(1)
    results = []
    for graphs_allowed in "10":
        monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", graphs_allowed)
        results.append(found_by(models, batch_of(9, 18), min_len=3, max_len_b=20))
    assert results[0][0] == results[1][0]
    assert len(tries) == length // 8


def test_a_search_by_graphs_goes_on_without_them_where_gradients_are_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (model,) = models_of(1)
    results = []
    for graphs_allowed in "10":
        monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", graphs_allowed)
        with torch.no_grad():
            search = Forced(model, batch_of(3, 7))
            steps = [search.step() for _ in range(5)]
        with torch.enable_grad():
            steps += [search.step().detach() for _ in range(5)]
        results.append(torch.cat(steps, dim=1))
    torch.testing.assert_close(*results, rtol=0, atol=1e-4)


#: Embeddings that ask the GPU for a value.
ASKING = {
    "adaptive": ADAPTIVE,
    "characters": {"character_embeddings": True, "character_filters": "[(1, 8)]"},
}


@pytest.mark.parametrize("embedding", ASKING)
def test_embeddings_that_ask_the_gpu_decode_without_graphs(
    embedding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"share_decoder_input_output_embed": False, **ASKING[embedding]}
    model = make_language_model("transformer_lm_mhe", **options).to(DEVICE)
    model.make_generation_fast_()
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 7))


class Asking(KINDS["mha"]):  # type: ignore[misc]
    """A researcher's kind that asks the GPU for a number."""

    def queries(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            raise FloatingPointError
        return super().queries(x)


def test_a_kind_that_asks_the_gpu_is_told_how_to_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "asking", Asking)
    (model,) = models_of(1, attention="asking")
    with pytest.raises(UserError, match="FAIRSEQ_MHE_CUDA_GRAPHS=0"):
        forced_logits(model, batch_of(3, 7))
    monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "0")
    forced_logits(model, batch_of(3, 7))


class Counting(KINDS["mha"]):  # type: ignore[misc]
    """A researcher's kind that caches something else, too."""

    def _get_input_buffer(self, state: Any) -> Any:
        cache = super()._get_input_buffer(state)
        if cache is not None:
            cache.calls = getattr(cache, "calls", 0) + 1
        return cache


def test_a_kind_that_caches_something_else_decodes_without_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(KINDS, "counting", Counting)
    (model,) = models_of(1, attention="counting")
    assert_decodes_as_without_graphs(monkeypatch, model, batch_of(3, 7))
    assert not model.decoder._decoding_graphs.steps
