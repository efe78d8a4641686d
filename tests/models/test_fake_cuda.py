"""Models on a simulated GPU: how often the host waits for it, and the kernels of a step."""

from typing import Any

import pytest
import torch

from fairseq_mhe.attention import KINDS
from fairseq_mhe.models.graphs import compute_features
from fairseq_mhe.models.transformer import TransformerMHEModel
from tests.fixtures.fake_cuda import CUDA, DTYPES, empty, fake_cuda, move_to_gpu
from tests.fixtures.models import make_model

B, BEAM, S, T = 3, 2, 7, 5
ORDER = "fairseq_mhe.attention.cache._to_host"
#: The test for padding in a decoding step waits for the GPU, as in fairseq.
DECODER = "fairseq_mhe.models.transformer.Decoder._padding"
#: fp16 takes the same code paths as bf16.
_RUNS = [*((kind, "bf16") for kind in KINDS), ("mha", "float32")]
each_kind = pytest.mark.parametrize(("kind", "dtype"), _RUNS)


def model_of(kind: str) -> TransformerMHEModel:
    """A model with one encoder layer and two decoder layers; the last one returns weights."""
    # fairseq's sinusoidal positions read a shape from memory, which fake tensors have not.
    options: dict[str, Any] = {"encoder_learned_pos": True, "decoder_learned_pos": True}
    options |= {"max_source_positions": 32, "max_target_positions": 32}
    return make_model(attention=kind, encoder_layers=1, **options)


def tokens(*shape: int) -> torch.Tensor:
    return empty(*shape, dtype=torch.long)


@each_kind
def test_training_never_waits_for_the_gpu(kind: str, dtype: str) -> None:
    """Gradients stay on the GPU."""
    model = model_of(kind).train()
    with fake_cuda():
        move_to_gpu(model, DTYPES[dtype])
        scores = model(tokens(B, S), tokens(B), tokens(B, T))[0]
        assert (scores.device, scores.dtype) == (CUDA, DTYPES[dtype])
        model.get_normalized_probs((scores, None), log_probs=True).sum().backward()
        for name, parameter in model.named_parameters():
            actual = [getattr(parameter.grad, fact, None) for fact in ("device", "dtype", "shape")]
            assert actual == [CUDA, DTYPES[dtype], parameter.shape], name
    with fake_cuda() as watch:
        move_to_gpu(model, DTYPES[dtype])
        compute_features(model, {}, tokens(B, S), tokens(B, T)).sum().backward()  # of a graph
        unfused = dtype == "float32" or kind == "tpa"
        assert unfused or not watch.kernels["triu"], "flash attention needs no mask"


def test_a_step_of_mhe_starts_no_more_kernels_than_one_of_mha(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "0")
    started = {}
    for kind in ("mha", "mhe_mul"):
        model = model_of(kind).eval()
        with monkeypatch.context() as patch:  # the form for a GPU
            patch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
            model.make_generation_fast_(need_attn=False)
        with fake_cuda({DECODER: False}) as watch, torch.no_grad():
            move_to_gpu(model, torch.float16)
            inputs = {"encoder_out": model.encoder(tokens(B, S), tokens(B))}
            state: dict[str, Any] = {}
            for step in (1, 2):  # in the first, what depends on weights alone is computed
                watch.kernels.clear()
                model.decoder(tokens(B, step), **inputs, incremental_state=state)
        started[kind] = watch.kernels.total()
    assert 30 < started["mhe_mul"] <= started["mha"]


@each_kind
def test_a_decoding_step_waits_once_for_the_order_of_hypotheses(kind: str, dtype: str) -> None:
    """All layers share one read of the order, also those of an ensemble of two models."""
    models = [model_of(kind) for _ in range(2 if kind == "mha" else 1)]
    answers = {DECODER: True, ORDER: [0, 0, 3, 2, 5, 5]}
    with fake_cuda(answers) as watch, torch.no_grad():
        source, lengths, first = tokens(B, S), tokens(B), tokens(B * BEAM)
        states: list[dict[str, Any]] = [{} for _ in models]
        memories = []
        for model in models:
            move_to_gpu(model, DTYPES[dtype])
            memory = model.encoder(source, lengths)
            memories.append(model.encoder.reorder_encoder_out(memory, first))
        for step in (1, 2):
            watch.reads.clear()
            prefix, order = tokens(B * BEAM, step), tokens(B * BEAM)
            for model, memory, state in zip(models, memories, states, strict=True):
                scores, _ = model.decoder(prefix, encoder_out=memory, incremental_state=state)
                assert (scores.shape[:2], scores.dtype) == ((B * BEAM, 1), DTYPES[dtype])
            for i, model in enumerate(models):
                model.decoder.reorder_incremental_state_scripting(states[i], order)
                memories[i] = model.encoder.reorder_encoder_out(memories[i], order)
            assert watch.reads == {DECODER: len(models), ORDER: 1}
