"""CUDA graphs find the hypotheses of beam search without graphs; on a GPU if there is one."""

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models import decoding_graphs, recording
from tests.fixtures import tape
from tests.fixtures.language import ADAPTIVE, make_language_model
from tests.fixtures.models import make_batch, make_model, search

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = 1e-4 if DEVICE == "cuda" else 1e-5  # a GPU adds up in another order
#: Batches: number of sentences, length of the longest; the last one finds graphs of the first.
SHAPES = ((9, 18), (3, 7), (10, 17))
LONG, GREEDY = {"min_len": 3, "max_len_b": 20}, {"beam_size": 1, "max_len_b": 4}

#: Calls a function with graphs and without; the results must be equal.
Check = Callable[[Callable[[], Any]], None]


@pytest.fixture(autouse=True)
def _on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small steps: a search needs several, with fewer and fewer sentences.
    monkeypatch.setattr(decoding_graphs, "_SENTENCE_MULTIPLE", 2)
    monkeypatch.setattr(decoding_graphs, "_TARGET_MULTIPLE", 8)
    if DEVICE == "cpu":
        tape.pretend_to_be_a_gpu(monkeypatch)


@pytest.fixture
def same_without_graphs(monkeypatch: pytest.MonkeyPatch) -> Check:
    def check(decode: Callable[[], Any]) -> None:
        results = []
        for graphs_allowed in "10":
            monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", graphs_allowed)
            results.append(decode())
        monkeypatch.delenv("FAIRSEQ_MHE_CUDA_GRAPHS")
        torch.testing.assert_close(*results, rtol=0, atol=TOLERANCE)

    return check


def models_of(count: int = 1, **options: Any) -> list[Any]:
    options = {"max_target_positions": 64, **options}
    models = [make_model(seed=seed + 1, **options).to(DEVICE) for seed in range(count)]
    for model in models:
        # A larger embedding of </s> ends sentences at different steps.
        model.decoder.embed_tokens.weight.data[model.decoder.dictionary.eos()] *= 3
        model.make_generation_fast_()
    return models


def batch_of(sentences: int, longest: int, seed: int = 0) -> dict[str, Tensor]:
    return {name: x.to(DEVICE) for name, x in make_batch(sentences, longest, seed).items()}


def found_by(models: list[Any], batch: Any, **options: Any) -> list[Any]:
    """Return the tokens and scores of all hypotheses."""
    hypotheses = chain.from_iterable(search(models, batch, **options))
    return [(hypothesis["tokens"], hypothesis["score"]) for hypothesis in hypotheses]


class Forced:
    """A search whose words are given: decodes a batch step by step."""

    def __init__(self, model: Any, batch: dict[str, Tensor]) -> None:
        self.decoder = model.decoder
        self.state: dict[Any, Any] = {}
        self.memory = None
        if hasattr(model, "encoder"):
            self.memory = model.encoder(batch["src_tokens"], batch["src_lengths"])
        words = torch.Generator().manual_seed(int(batch["src_tokens"].sum()))
        shape = len(batch["src_tokens"]), 20
        self.tokens = torch.randint(4, 44, shape, generator=words).to(DEVICE)
        self.length = 0

    def step(self) -> Tensor:
        """Return the logits (N, 1, V) of one more position."""
        self.length += 1
        tokens = self.tokens[:, : self.length]
        logits, _ = self.decoder(tokens, encoder_out=self.memory, incremental_state=self.state)
        return logits


@torch.no_grad()
def forced(model: Any, *batches: dict[str, Tensor]) -> list[Tensor]:
    """Return the logits of 20 steps of one search for each batch; the searches take turns."""
    searches = [Forced(model, batch) for batch in batches or [batch_of(3, 7)]]
    steps = [[search.step() for search in searches] for _ in range(20)]
    return [torch.cat(logits, dim=1) for logits in zip(*steps, strict=True)]


def steps_of(model: Any) -> list[Any]:
    graphs = model.decoder._decoding_graphs
    return graphs.steps if graphs else []


@pytest.mark.parametrize(
    ("kind", "learned"), [*((kind, False) for kind in KINDS), ("mhe_mul", True)]
)
def test_hypotheses_are_those_without_graphs(
    kind: str, learned: bool, same_without_graphs: Check
) -> None:
    count = 2 if kind in ("mhe_mul", "mqa") else 1  # each model of an ensemble has its own graphs
    models = models_of(count, attention=kind, decoder_learned_pos=learned)
    for shape in SHAPES if count == 2 else SHAPES[::2]:  # graphs of one batch find another
        batch = batch_of(*shape, seed=sum(shape))
        with torch.inference_mode(shape == SHAPES[0]):
            for settings in (LONG, GREEDY):
                same_without_graphs(lambda: found_by(models, batch, **settings))  # noqa: B023
    for model in models:
        shapes = {step.shape for step in steps_of(model)}
        assert len(shapes) >= 2
        assert kind != "mqa" or (2, 4, 32, 24) in shapes  # sentences that have ended take no room


def test_steps_of_a_language_model_have_no_source(
    same_without_graphs: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding_graphs, "_KEPT_STEPS", 2)
    (model,) = models_of(arch="transformer_lm_mhe_tiny")
    same_without_graphs(lambda: found_by([model], batch_of(5, 7), **LONG))
    assert [step.shape[2:] for step in steps_of(model)] == [(0, 16), (0, 24)]  # the last two


def test_searches_of_one_shape_that_take_turns_do_not_mix(same_without_graphs: Check) -> None:
    (model,) = models_of()
    batches = [batch_of(3, 7, seed) for seed in (1, 2)]
    for _ in range(2):  # the second time by the same graphs
        same_without_graphs(lambda: forced(model, *batches))
        assert len(steps_of(model)) == 6  # for 8, 16 and 24 positions


def test_an_infinity_of_an_earlier_search_does_not_stay(same_without_graphs: Check) -> None:
    (model,) = models_of()
    with torch.no_grad():
        overflown = Forced(model, batch_of(4, 15))
        overflown.memory["encoder_out"][0].fill_(torch.inf)
        for _ in range(3):
            assert overflown.step().isnan().all()
        del overflown
    same_without_graphs(lambda: forced(model, batch_of(3, 12)))
    assert len(steps_of(model)) == 3  # the same shapes


def test_copies_and_moved_weights_get_graphs_of_their_own(same_without_graphs: Check) -> None:
    """Copies as of --store-ema; weights move in ``model.half()``."""
    (model,) = models_of()
    same_without_graphs(lambda: forced(model))
    copied = copy.deepcopy(model)
    for weight in copied.parameters():
        weight.data.mul_(1.1)
    same_without_graphs(lambda: forced(copied))
    same_without_graphs(lambda: forced(model))
    for weight in model.parameters():
        weight.data = 1.1 * weight.data
    same_without_graphs(lambda: forced(model))


@torch.no_grad()
def test_a_step_by_a_graph_does_not_wait_for_the_gpu() -> None:
    """Only the order of hypotheses waits, once for all layers, and what fairseq's search reads."""
    (model,) = models_of(decoder_learned_pos=True)
    search = Forced(model, batch_of(3, 7))
    for _ in range(4):
        search.step()
    assert steps_of(model)
    with tape.no_waits():
        search.step()


@pytest.mark.parametrize("length", [8, 16])
def test_a_search_goes_on_without_graphs_if_a_recording_runs_out_of_memory(
    length: int, same_without_graphs: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []
    record = recording.Recorder.record

    def full(self: Any, work: Any) -> Any:
        tries.append(work)
        if len(tries) >= length // 8:
            raise torch.OutOfMemoryError("the GPU is full")
        return record(self, work)

    monkeypatch.setattr(recording.Recorder, "record", full)
    models = models_of()
    same_without_graphs(lambda: found_by(models, batch_of(9, 18), **LONG))
    assert len(tries) == length // 8


def test_a_search_goes_on_without_graphs_where_gradients_are_wanted(
    same_without_graphs: Check,
) -> None:
    (model,) = models_of()

    def decode() -> Tensor:
        with torch.no_grad():
            search = Forced(model, batch_of(3, 7))
            steps = [search.step() for _ in range(5)]
        return torch.cat([*steps, *(search.step().detach() for _ in range(5))], dim=1)

    same_without_graphs(decode)


def test_attention_weights_are_found_without_graphs() -> None:
    model = make_model().to(DEVICE)
    with torch.no_grad():
        hypotheses = search([model], batch_of(3, 7))
    assert all(best["attention"].numel() for best, *_ in hypotheses)
    assert not steps_of(model)


#: Embeddings that ask the GPU for a value.
ASKING = [ADAPTIVE, {"character_embeddings": True, "character_filters": "[(1, 8)]"}]


@pytest.mark.parametrize("options", ASKING, ids=["adaptive", "characters"])
def test_embeddings_that_ask_the_gpu_decode_without_graphs(
    options: dict, same_without_graphs: Check
) -> None:
    options = {"share_decoder_input_output_embed": False, **options}
    model = make_language_model("transformer_lm_mhe", **options).to(DEVICE)
    model.make_generation_fast_()
    same_without_graphs(lambda: forced(model))


def test_a_kind_that_asks_the_gpu_is_told_how_to_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asking(KINDS["mha"]):
        def queries(self, x: Tensor) -> Tensor:
            if x.isnan().any():
                raise FloatingPointError
            return super().queries(x)

    monkeypatch.setitem(KINDS, "asking", Asking)
    (model,) = models_of(attention="asking")
    with pytest.raises(UserError, match="FAIRSEQ_MHE_CUDA_GRAPHS=0"):
        forced(model)
    monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "0")
    forced(model)


def test_a_kind_that_caches_something_else_decodes_without_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counting(KINDS["mha"]):
        def _get_input_buffer(self, state: Any) -> Any:
            cache = super()._get_input_buffer(state)
            if cache is not None:
                cache.calls = getattr(cache, "calls", 0) + 1
            return cache

    monkeypatch.setitem(KINDS, "counting", Counting)
    (model,) = models_of(attention="counting")
    forced(model)
    assert not steps_of(model)
