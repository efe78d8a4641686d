"""``adam_fused`` equals fairseq's Adam in every precision, and resumes its checkpoints."""

import copy
import functools
from typing import Any

import pytest
import torch
from fairseq import optim, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig
from torch import Tensor, nn

from tests.fixtures.models import make_model


@functools.cache  # converting takes longer than all updates of a test
def configuration(optimizer: str, *more: str) -> DictConfig:
    words = ["data", "--arch", "transformer_mhe_tiny", "--lr", "0.01", "--optimizer", optimizer]
    args = options.parse_args_and_arch(options.get_training_parser(), [*words, *more])
    return convert_namespace_to_omegaconf(args)


def train(optimizer: Any, model: nn.Module, updates: range) -> list[Tensor]:
    """Train; return parameters and gradient norms. An update's number seeds its gradients."""
    norms = []
    for number in updates:
        drawn = torch.Generator().manual_seed(number)
        parameters = list(model.parameters())
        gradients = [torch.randn(p.shape, generator=drawn).to(p) for p in parameters]
        optimizer.zero_grad()
        used = list(zip(parameters, gradients, strict=True))
        if number == 2:  # an update in which the first parameter gets no gradient
            del used[0]
        optimizer.backward(sum((p * g).sum() for p, g in used))
        optimizer.multiply_grads(20)
        norms.append(torch.as_tensor(optimizer.clip_grad_norm(1000.0)).float())
        optimizer.step()
        optimizer.set_lr(0.001 * (number + 1))
    return [*(parameter.detach().clone() for parameter in model.parameters()), *norms]


def build_optimizer(cfg: DictConfig, model: nn.Module) -> Any:
    """Build the optimizer as fairseq's Trainer does."""
    parameters = list(model.parameters())
    if cfg.common.bf16 or cfg.common.fp16:
        return optim.FP16Optimizer.build_optimizer(cfg, parameters)
    return optim.build_optimizer(cfg.optimizer, parameters)


ADAMS = ("adam", "adam_fused")
#: Options and dtype of weights. Only on a GPU fairseq flattens weights of --fp16 to one tensor.
PRECISIONS: dict[str, tuple[list[str], torch.dtype]] = {
    "float32": ([], torch.float32),
    "bf16": (["--bf16", "--cpu"], torch.bfloat16),
    "fp16": (["--fp16"], torch.float16),
    "fp16, flat": (["--fp16"], torch.float16),
}


@pytest.mark.parametrize(
    ("precision", "gpu"),
    [("float32", False), ("bf16", False), *((precision, True) for precision in PRECISIONS)],
)
def test_adam_fused_equals_fairseqs_adam_and_resumes_its_checkpoint(
    precision: str, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to rounding and the place of eps; the code for GPUs runs on the CPU here."""
    more, dtype = PRECISIONS[precision]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    results = []
    for names in (("adam", "adam"), ("adam_fused", "adam_fused"), ("adam", "adam_fused")):
        model, saved = make_model(attention="mhe_mul").to(dtype), None
        for name, updates in zip(names, (range(3), range(3, 6)), strict=True):
            common = ("--weight-decay", "0.1", "--adam-betas", "(0.9, 0.98)")
            cfg = copy.deepcopy(configuration(name, *common, *more))
            cfg.common.fp16_no_flatten_grads = precision != "fp16, flat"
            with monkeypatch.context() as patch:
                ours = gpu and name == "adam_fused"
                patch.setattr(Tensor, "is_cuda", property(lambda self, is_=ours: is_))
                optimizer = build_optimizer(cfg, model)
                if saved:
                    optimizer.load_state_dict(saved)
                fused = optimizer.optimizer.param_groups[0].get("fused")
                assert bool(fused) == (name == "adam_fused")
                values = train(optimizer, model, updates)
            saved = optimizer.state_dict()
        results.append(values)
    tolerance = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 1e-4}
    if dtype == torch.float32:
        tolerance = {"rtol": 1e-5, "atol": 1e-6}
    theirs, fused, resumed = results
    for first, after in zip(make_model(attention="mhe_mul").parameters(), theirs, strict=False):
        assert (after - first).abs().max() > 0.01
    parameters, norms = slice(None, -3), slice(-3, None)
    torch.testing.assert_close(fused[parameters], theirs[parameters], **tolerance)
    torch.testing.assert_close(resumed[parameters], theirs[parameters], **tolerance)
    torch.testing.assert_close(fused[norms], theirs[norms], rtol=1e-5, atol=0)


def test_fairseqs_trainer_resumes_adam_by_adam_fused() -> None:
    """It compares only the names of the classes."""
    model = make_model()
    names = [type(build_optimizer(configuration(name), model)).__name__ for name in ADAMS]
    assert names[0] == names[1]
