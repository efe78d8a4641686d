"""``adam_fused`` is fairseq's Adam; ``adam_mhe`` is, but for the weight decay of head embeddings;
in every precision, and they resume.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.fp16_optimizer import FP16Optimizer
from omegaconf import DictConfig
from torch import nn

from tests.fixtures.models import make_model

NAMES = ("query_embedding", "key_embedding", "value_embedding")


@functools.cache  # converting takes longer than all updates of a test
def configuration(optimizer: str, *more: str) -> DictConfig:
    words = [
        "data",
        "--arch",
        "transformer_mhe_tiny",
        "--lr",
        "0.01",
        "--optimizer",
        optimizer,
        *more,
    ]
    return convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), words)
    )


def step(model: nn.Module, cfg: DictConfig) -> Any:
    """One update with the same gradients everywhere; the optimizer."""
    optimizer = optim.build_optimizer(cfg.optimizer, list(model.parameters()))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


def trained(optimizer: Any, model: nn.Module, updates: range) -> list[torch.Tensor]:
    """The parameters after updates with gradients that depend on the number of the update alone."""
    for number in updates:
        drawn = torch.Generator().manual_seed(number)
        parameters = list(model.parameters())
        gradients = [torch.randn(p.shape, generator=drawn).to(p) for p in parameters]
        optimizer.zero_grad()
        optimizer.backward(sum((p * g).sum() for p, g in zip(parameters, gradients, strict=True)))
        optimizer.step()
        optimizer.set_lr(0.001 * (number + 1))
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("more", [[], ["--bf16", "--cpu"]])
def test_the_fused_one_is_fairseqs_and_goes_on_from_its_checkpoint(more: list[str]) -> None:
    """All differ in rounding and the place of eps: 1e-8 beside gradients of about 1."""
    found = []
    for names in (("adam", "adam"), ("adam_fused", "adam_fused"), ("adam", "adam_fused")):
        model, saved = make_model(attention="mhe_mul"), None
        model = model.bfloat16() if more else model
        for name, updates in zip(names, (range(3), range(3, 6)), strict=True):
            cfg = configuration(name, "--weight-decay", "0.1", "--adam-betas", "(0.9, 0.98)", *more)
            parameters = list(model.parameters())
            optimizer = (
                FP16Optimizer.build_optimizer(cfg, parameters)
                if more
                else optim.build_optimizer(cfg.optimizer, parameters)
            )
            if saved:
                optimizer.load_state_dict(saved)
            values = trained(optimizer, model, updates)
            saved = optimizer.state_dict()
        found.append(values)
    start = list(make_model(attention="mhe_mul").parameters())
    for theirs, ours, went_on, first in zip(*found, start, strict=True):
        assert (theirs - first).abs().max() > 0.01
        tolerance = {"rtol": 2**-7, "atol": 1e-4} if more else {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(ours, theirs, **tolerance)
        torch.testing.assert_close(went_on, theirs, **tolerance)


def test_only_head_embeddings_decay_by_their_own_rate() -> None:
    start, plain, ours = (make_model(attention="mhe_mul") for _ in range(3))  # of the same seed
    step(plain, configuration("adam", "--weight-decay", "0.5"))
    optimizer = step(
        ours,
        configuration("adam_mhe", "--weight-decay", "0.5", "--head-embedding-weight-decay", "2"),
    )
    before, without = dict(start.named_parameters()), dict(plain.named_parameters())
    found = 0
    for name, value in ours.named_parameters():
        if name.endswith(NAMES):
            found += 1
            # Adam's own step is the same; the decay is lr * rate * weight, 2 instead of 0.5 of
            # them.
            expected = without[name] - 0.01 * (2 - 0.5) * before[name]
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-7)
        else:
            torch.testing.assert_close(value, without[name], rtol=0, atol=0)
    assert found == 3 * 6
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 2.0]


def test_it_goes_on_from_a_checkpoint() -> None:
    model = make_model(attention="mhe_add")
    cfg = configuration("adam_mhe", "--head-embedding-weight-decay", "2")
    saved = step(model, cfg).state_dict()
    again = optim.build_optimizer(cfg.optimizer, list(model.parameters()))
    again.load_state_dict(saved)
    assert [group["weight_decay"] for group in again.param_groups] == [0.0, 2.0]
    assert len(again.optimizer.state) == len(list(model.parameters()))


def test_in_bfloat16_the_full_precision_copies_are_told_apart_too() -> None:
    model = make_model(attention="mhe_mul").bfloat16()
    cfg = configuration("adam_mhe", "--head-embedding-weight-decay", "2", "--bf16", "--cpu")
    optimizer = FP16Optimizer.build_optimizer(cfg, list(model.parameters()))
    rest, embeddings = optimizer.param_groups
    assert (len(embeddings["params"]), embeddings["weight_decay"]) == (18, 2.0)
    assert all(parameter.dtype == torch.float32 for parameter in embeddings["params"])
    assert len(rest["params"]) == len(list(model.parameters())) - 18


def test_without_head_embeddings_it_is_refused() -> None:
    with pytest.raises(
        SystemExit, match="adam_mhe finds no head embeddings: take mhe_mul or mhe_add"
    ):
        step(make_model(attention="mha"), configuration("adam_mhe"))
