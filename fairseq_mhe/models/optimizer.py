"""``--optimizer adam_fused``: fairseq's Adam in one pass, also under --bf16 and --fp16."""

import functools
from collections.abc import Iterable
from typing import Any

import torch
from fairseq.optim import adam, fp16_optimizer, register_optimizer
from fairseq.optim.adam import FairseqAdamConfig
from torch import Tensor, nn
from torch.optim import AdamW


def optimizer_for(precision: str) -> str:
    """Return the --optimizer for a precision: ours where it is clearly faster (bf16, GPUs)."""
    return "adam_fused" if precision == "bf16" or torch.cuda.is_available() else "adam"


class FairseqAdam(adam.FairseqAdam):
    """Adam by torch's fused kernel, also on a CPU: one pass over the weights (fairseq: 7 or 8).

    Weight decay is decoupled (Loshchilov and Hutter 2019). ``--adam-eps`` is added after bias
    correction (Kingma and Ba 2015, algorithm 1). It resumes from ``adam`` of the same precision:
    fairseq asks only that the class has the name in the checkpoint, hence this name.
    """

    supports_flat_params = True  # on a GPU --fp16 puts all weights into one flat tensor

    def __init__(self, cfg: FairseqAdamConfig, params: Iterable[nn.Parameter]) -> None:
        parameters = list(params)
        super().__init__(cfg, parameters)
        self._optimizer = AdamW(parameters, **self.optimizer_config, fused=True)

    def load_state_dict(self, state: dict[str, Any], *overrides: Any) -> None:
        """Load a checkpoint, and set the option ``fused``, which one of fairseq's Adam lacks."""
        groups = [{**group, "fused": True} for group in state["param_groups"]]
        super().load_state_dict({**state, "param_groups": groups}, *overrides)

    @torch.no_grad()
    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Clip the gradients to a norm of ``max_norm`` (0: do not clip); return the norm before."""
        gradients = [p.grad for p in self.params if p.grad is not None]
        if aggregate_norm_fn or not (gradients and gradients[0].is_cuda):
            return super().clip_grad_norm(max_norm, aggregate_norm_fn)
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        if max_norm > 0:
            nn.utils.clip_grads_with_norm_(self.params, max_norm, norm, foreach=True)
        return norm


@register_optimizer("adam_fused", dataclass=FairseqAdamConfig)
class AdamFused(FairseqAdam):
    """Registers `FairseqAdam`: fairseq registers no two classes of one name."""

    @staticmethod
    def build_optimizer(
        cfg: FairseqAdamConfig, params: Iterable[nn.Parameter]
    ) -> FairseqAdam:
        """Build the optimizer for ``params``; fairseq calls this."""
        return FairseqAdam(cfg, params)


class FP16Optimizer(fp16_optimizer.FP16Optimizer):
    """fairseq's FP16Optimizer, but with `adam_fused` on a GPU one call copies all weights.

    fairseq's Trainer uses it after `fairseq_mhe.fix_fairseq`; checkpoints store the class's name.
    """

    @functools.cached_property
    def _copies_at_once(self) -> bool:
        return (
            isinstance(self.fp32_optimizer, FairseqAdam) and self.fp16_params[0].is_cuda
        )

    @functools.cached_property
    def fp32_weights_grads(self) -> tuple[list[Tensor], list[Tensor]]:
        """The float32 weights and gradients, in the order and shapes of ``fp16_params``."""
        if not self.has_flat_params:
            weights = [p.data for p in self.fp32_params]
            return weights, [p.grad for p in self.fp32_params]
        (flat,) = self.fp32_params.values()
        sizes = [p.numel() for p in self.fp16_params]
        shapes = [p.shape for p in self.fp16_params]
        weights = list(map(Tensor.view, flat.data.split(sizes), shapes))
        gradients = list(map(Tensor.view, flat.grad.split(sizes), shapes))
        return weights, gradients

    def _sync_fp16_grads_to_fp32(self) -> None:
        """Copy new gradients to float32; a weight without one gets a gradient of 0."""
        if not self._copies_at_once:
            super()._sync_fp16_grads_to_fp32()
        elif self._needs_sync:
            grads = []
            for p in self.fp16_params:
                grads.append(torch.zeros_like(p) if p.grad is None else p.grad)
            _, fp32_grads = self.fp32_weights_grads
            torch._foreach_copy_(fp32_grads, grads)
            self._needs_sync: bool = False

    def _sync_fp32_params_to_fp16(self) -> None:
        if not self._copies_at_once:
            super()._sync_fp32_params_to_fp16()
            return
        fp32_weights, _ = self.fp32_weights_grads
        torch._foreach_copy_([p.data for p in self.fp16_params], fp32_weights)

    def zero_grad(self) -> None:
        """Drop the gradients but not their float32 copies, which the next copying overwrites."""
        if not self._copies_at_once:
            super().zero_grad()
            return
        for p in self.fp16_params:
            p.grad = None
        self._needs_sync = False
        if self.scaler is not None:
            self._multiply_factor = 1.0 / float(self.scaler.loss_scale)
