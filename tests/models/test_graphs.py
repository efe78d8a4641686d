"""CUDA graphs in training: every batch has the logits and gradients of a model without graphs.

Without a GPU a tape of operators replaces the graph.
"""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.nan_detector import NanDetector
from fairseq.options import get_training_parser, parse_args_and_arch
from torch import Tensor, nn

from fairseq_mhe.attention import KINDS
from fairseq_mhe.models import graphs, recording
from tests.fixtures import tape
from tests.fixtures.models import make_batch, make_dictionary, make_model
from tests.fixtures.refusals import refuses
from tests.models.test_optimizer import build_optimizer, configuration

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
#: Relative to the greatest number; a GPU adds up in another order for other shapes.
TOLERANCE = 1e-4 if DEVICE == "cuda" else 1e-5
#: Batches: number of sentences, length of the longest. They are padded to two shapes.
SHAPES = ((5, 7), (6, 8), (3, 5), (17, 11), (18, 9), (4, 7))


@pytest.fixture(autouse=True)
def _recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        tape.pretend_to_be_a_gpu(monkeypatch)


def model_of(**options: Any) -> nn.Module:
    defaults = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    defaults |= dict.fromkeys(("cuda_graphs", "encoder_learned_pos", "decoder_learned_pos"), True)
    defaults |= dict.fromkeys(("max_source_positions", "max_target_positions"), 11)
    return make_model(**{**defaults, **options}).train().to(DEVICE)


def batch_of(sentences: int, longest: int, causal: bool = False) -> dict[str, Tensor]:
    batch = make_batch(sentences, longest, seed=sentences)
    if causal:
        batch = {"src_tokens": batch["prev_output_tokens"], "src_lengths": batch["src_lengths"]}
    return {name: tensor.to(DEVICE) for name, tensor in batch.items()}


def logits_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the logits of words, (N, V); those at padding may differ."""
    tokens = batch.get("prev_output_tokens", batch["src_tokens"])
    return model(**batch)[0][tokens.ne(model.decoder.dictionary.pad())]


def logits_and_gradients(model: nn.Module, batch: dict[str, Tensor]) -> list[Tensor]:
    logits = logits_of(model, batch)
    logits.square().mean().backward()
    gradients = [weight.grad.flatten() for weight in model.parameters()]
    return [logits.detach(), torch.cat(gradients).clone()]


def recorded(model: nn.Module) -> list[Any]:
    if model._graphs is None:
        return []
    return [graph for graph in model._graphs.by_shape.values() if graph is not None]


def assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    for ours, other in zip(actual, expected, strict=True):
        greatest = float(other.abs().max())
        torch.testing.assert_close(ours, other, rtol=0, atol=TOLERANCE * greatest)


def assert_trains_as_without_graphs(model: nn.Module, batch: dict[str, Tensor]) -> None:
    results = []
    for with_graphs in (True, False):
        model.args.cuda_graphs = with_graphs
        model.zero_grad()
        results.append(logits_and_gradients(model, batch))
    model.args.cuda_graphs = True
    assert_close(*results)


@pytest.mark.parametrize(
    ("kind", "arch"),
    [*((kind, "transformer_mhe_base") for kind in KINDS), ("mhe_mul", "transformer_lm_mhe_tiny")],
)
def test_logits_and_gradients_are_those_without_graphs(kind: str, arch: str) -> None:
    layers = 2 if kind == "mhe_mul" else 1
    model = model_of(arch=arch, attention=kind, encoder_layers=layers, decoder_layers=layers)
    for _ in range(2):
        for shape in SHAPES:
            batch = batch_of(*shape, causal="lm" in arch)
            assert_trains_as_without_graphs(model, batch)
        with torch.no_grad():  # an update
            for weight in model.parameters():
                weight.mul_(1.1)
    assert len(recorded(model)) == 2
    assert not recorded(copy.deepcopy(model))  # as of --store-ema


@pytest.mark.parametrize("together", [False, True])
def test_gradients_of_several_batches_add_up(together: bool) -> None:
    """A graph must not overwrite earlier gradients; ``together``: batches share a backward pass."""
    model = model_of()
    batches = [batch_of(*shape) for shape in ((5, 7), (6, 8), (5, 7))]
    results = []
    for with_graphs in (True, True, False):
        model.args.cuda_graphs = with_graphs
        model.zero_grad()
        if together:
            sum(logits_of(model, batch).square().mean() for batch in batches).backward()
        results.append([logits_and_gradients(model, batch)[1] for batch in batches])
    assert len(recorded(model)) == 1
    assert_close(results[1], results[2])


def test_an_infinity_in_a_row_of_an_earlier_batch_does_not_stay() -> None:
    """Both batches have graphs of one shape; the second has fewer sentences."""
    model = model_of(share_all_embeddings=False)
    infinite, clean = batch_of(6, 7), batch_of(5, 7)
    clean["src_tokens"].clamp_(max=42)
    infinite["src_tokens"][5, -2] = 43
    model.encoder.embed_tokens.weight.data[43] = torch.inf
    for batch in (clean, clean, infinite):
        logits_of(model, batch).sum().backward()
    assert len(recorded(model)) == 1
    assert_trains_as_without_graphs(model, clean)


@pytest.mark.parametrize("with_graphs", [True, False])
def test_an_update_does_not_wait_for_the_gpu(
    with_graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the look at a batch's padding waits for it, and what fairseq's Trainer does around."""
    precision = ["--bf16"] if DEVICE == "cuda" else []
    model = model_of(cuda_graphs=with_graphs).to(torch.bfloat16 if precision else torch.float32)
    optimizer = build_optimizer(configuration("adam_fused", *precision), model)
    task = SimpleNamespace(target_dictionary=make_dictionary())
    criterion = LabelSmoothedCrossEntropyCriterion(task, sentence_avg=False, label_smoothing=0.1)
    batch = batch_of(5, 7)
    sample = {"net_input": batch, "target": batch["prev_output_tokens"], "ntokens": 5}

    def update() -> None:
        optimizer.zero_grad()
        loss, *_ = criterion(model, sample)
        optimizer.backward(loss)
        optimizer.clip_grad_norm(1.0)
        optimizer.step()

    for _ in range(3):
        update()
    assert len(recorded(model)) == with_graphs
    monkeypatch.setattr(graphs, "padded_on_the_right", lambda _: True)
    with tape.no_waits():
        update()
    with pytest.raises(RuntimeError, match="synchronizing"), tape.no_waits():
        batch["src_tokens"].sum().item()


def test_a_kept_loss_holds_no_graph_and_has_no_second_backward_pass() -> None:
    model, batch = model_of(), batch_of(5, 7)
    for _ in range(2):
        loss = model(**batch)[0].sum()
        loss.backward(retain_graph=True)  # then `loss` still keeps the autograd graph
    assert model._graphs(batch["src_tokens"], batch["prev_output_tokens"]) is not None
    with refuses("--cuda-graphs"):
        loss.backward()


def test_batches_that_no_graph_fits_run_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of()
    batch = batch_of(5, 7)
    left_padded = {**batch, "prev_output_tokens": batch["prev_output_tokens"].flip(1)}
    for _ in range(3):
        model(**batch, return_all_hiddens=True)
        model(**left_padded)
        torch.no_grad()(model)(**batch)
        with NanDetector(model, backward=False):
            model(**batch)
        model.eval()(**batch)
        model.train()
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 2**50)
    model(**left_padded)[0].sum().backward()
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 0)  # as after an update
    for _ in range(3):
        model(**batch)
    assert not recorded(model)


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_a_recording_that_runs_out_of_memory_loses_no_batch(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shape and larger ones train without a graph from then on, others with one."""
    tries = []
    record = recording.Recorder.record

    def full(self: Any, work: Any) -> Any:
        sentences = len(work.__self__.tokens[0])
        tries.append(sentences)
        if sentences > 8 and part in work.__name__:
            raise torch.OutOfMemoryError("the GPU is full")
        return record(self, work)

    monkeypatch.setattr(recording.Recorder, "record", full)
    model = model_of()
    for _ in range(3):
        for shape in ((5, 7), (17, 11)):
            assert_trains_as_without_graphs(model, batch_of(*shape))
    for _ in range(2):  # larger
        assert_trains_as_without_graphs(model, batch_of(25, 11))
    assert len(recorded(model)) == 1
    assert [size for size in tries if size > 8] == [24] * (1 + (part == "backward"))


@pytest.mark.skipif(DEVICE == "cuda", reason="sets how much memory tapes take")
def test_graphs_are_dropped_if_a_larger_batch_may_not_fit_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 100 bytes a batch takes 30, and its graphs 35. One three times as large takes 90."""
    model = model_of()
    for shape in ((5, 7), (5, 7)):
        assert_trains_as_without_graphs(model, batch_of(*shape))
    assert len(recorded(model)) == 1
    tape.set_memory(monkeypatch, total=100, cached=35)
    model._graphs.recorder.pool_bytes = 35
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 30)
    assert_trains_as_without_graphs(model, batch_of(5, 7))
    assert_trains_as_without_graphs(model, batch_of(3, 4))  # of another shape, but smaller
    assert len(recorded(model)) == 1
    assert_trains_as_without_graphs(model, batch_of(17, 7))
    assert not recorded(model)


def trains(wanted: bool) -> Any:
    return lambda model: model.decoder.embed_tokens.weight.requires_grad_(wanted)


def start_dropping(model: nn.Module) -> None:
    model.encoder.dropout_module.p = 0.5


def stop_dropping(model: nn.Module) -> None:
    model.encoder.eval()


CHANGES = {
    "the type": (nn.Module.float, nn.Module.double),
    "what trains": (trains(False), trains(True)),
    "dropout": (start_dropping, stop_dropping),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_graph_is_recorded_again_if_the_model_changed(what: str) -> None:
    model, batch = model_of(), batch_of(5, 7)
    for change in CHANGES[what]:
        change(model)
        for _ in range(3):
            model.zero_grad()
            assert model(**batch)[0].sum().isfinite()
    assert_trains_as_without_graphs(model, batch)
    assert len(recorded(model)) == 1


def test_options_with_other_kernels_for_each_batch_are_refused() -> None:
    with refuses("--cuda-graphs", "--checkpoint-activations"):
        model_of(checkpoint_activations=True)
    with refuses("--cuda-graphs", "--adaptive-input"):
        model_of(arch="transformer_lm_mhe_tiny", adaptive_input=True)


def test_several_gpus_are_refused_before_fairseq_starts_their_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = ["no-data", "--arch", "transformer_mhe_tiny", "--cuda-graphs"]
    with refuses("--cuda-graphs", "not 2"):
        parse_args_and_arch(get_training_parser(), [*line, "--distributed-world-size", "2"])
    # By torchrun, the processes are there already.
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with refuses("--cuda-graphs", "not 2"):
        model_of()
