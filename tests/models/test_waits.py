"""Models on a GPU never make the host wait, but twice in a decoding step; all stays on the GPU.

torch's device "meta" stands in for the GPU: its tensors hold no numbers, so a read raises an error,
as an operator of tensors on two devices does.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_mhe.attention import KINDS
from fairseq_mhe.models.graphs import compute_features
from tests.attention.conftest import Operators
from tests.fixtures.models import make_model

B, BEAM, S, T = 3, 2, 7, 5
META = torch.device("meta")
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda self: True))
    monkeypatch.setenv("FAIRSEQ_MHE_CUDA_GRAPHS", "0")


def model_of(kind: str) -> Any:
    """A model with one encoder layer and two decoder layers; the last one returns weights."""
    # fairseq's sinusoidal positions read a shape from memory.
    options: dict[str, Any] = {"encoder_learned_pos": True, "decoder_learned_pos": True}
    options |= {"max_source_positions": 32, "max_target_positions": 32}
    return make_model(attention=kind, encoder_layers=1, **options)


def tokens(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.long, device=META)


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, torch.bfloat16) for kind in KINDS), ("mhe_mul", torch.float32)]
)
def test_training_never_waits_for_the_gpu(kind: str, dtype: torch.dtype) -> None:
    model = model_of(kind).train().to(META, dtype)
    scores = model(tokens(B, S), tokens(B), tokens(B, T))[0]
    loss = model.get_normalized_probs((scores, None), log_probs=True).sum()
    features = compute_features(model, {}, tokens(B, S), tokens(B, T))  # of a CUDA graph
    (loss + features.sum()).backward()
    for x in (scores, features, *(parameter.grad for parameter in model.parameters())):
        assert (x.device, x.dtype) == (META, dtype)


@torch.no_grad()
def test_a_step_of_mhe_starts_no_more_kernels_than_one_of_mha(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tensor, "__bool__", lambda _: False)  # there is no padding
    started = {}
    for kind in ("mha", "mhe_mul"):
        model = model_of(kind)
        model.make_generation_fast_(need_attn=False)
        model.to(META, torch.float16)
        memory, state = model.encoder(tokens(B, S), tokens(B)), {}
        for step in (1, 2):  # in the first, what depends on weights alone is computed
            with Operators() as operators:
                decoded = model.decoder(tokens(B, step), memory, incremental_state=state)
        assert decoded[0].dtype == torch.float16
        started[kind] = len(operators.calls)
    assert 30 < started["mhe_mul"] <= started["mha"]


@each_kind
@torch.no_grad()
def test_a_decoding_step_waits_once_for_the_order_of_hypotheses(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All layers share one read, also those of two models; the other read looks for padding."""
    reads: Counter[str] = Counter()

    def answer(name: str, value: Any) -> Any:
        return lambda _: reads.update([name]) or value

    monkeypatch.setattr(Tensor, "__bool__", answer("is there padding", True))
    monkeypatch.setattr(Tensor, "tolist", answer("the order", [0, 0, 3, 2, 5, 5]))
    models = [model_of(kind).to(META, torch.bfloat16) for _ in range(2 if kind == "mha" else 1)]
    states: list[dict[str, Any]] = [{} for _ in models]
    memories = [model.encoder(tokens(B, S), tokens(B)) for model in models]
    first = tokens(B * BEAM)
    for i, model in enumerate(models):
        memories[i] = model.encoder.reorder_encoder_out(memories[i], first)
    for step in (1, 2):
        reads.clear()
        prefix, order = tokens(B * BEAM, step), tokens(B * BEAM)
        for i, model in enumerate(models):
            scores, _ = model.decoder(prefix, memories[i], incremental_state=states[i])
            assert (scores.shape[:2], scores.dtype) == ((B * BEAM, 1), torch.bfloat16)
        for i, model in enumerate(models):
            model.decoder.reorder_incremental_state_scripting(states[i], order)
            memories[i] = model.encoder.reorder_encoder_out(memories[i], order)
        assert reads == {"is there padding": len(models), "the order": 1}
