"""fairseq's GELU and dropout without copies in float32, for bf16 on CPUs."""

from typing import Any

import torch
from fairseq.modules import FairseqDropout, gelu
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention.kernel import drop


def quick_gelu(x: Tensor) -> Tensor:
    """GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415) of x (any shape).

    torch computes it of bfloat16 in float32 itself, so that values are fairseq's to the bit, and
    gradients to the bit or, on CPUs without AVX-512, to float32's rounding, in a fifth of the time.
    """
    return F.gelu(x) if x.dtype == torch.bfloat16 else gelu(x)


class QuickDropout(FairseqDropout):
    """fairseq's; in bfloat16 by `drop`, which draws masks quickly on a CPU."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drop values of x (any shape)."""
        active = self.p > 0 and (self.training or self.apply_during_inference)
        if not active or x.dtype != torch.bfloat16:
            return super().forward(x, inplace)
        return drop(x, self.p)


def quicken(model: nn.Module) -> None:
    """Replace fairseq's GELU and dropout in a new model."""
    modules: list[Any] = list(model.modules())
    for module in modules:
        if getattr(module, "activation_fn", None) is gelu:
            module.activation_fn = quick_gelu
        for name, child in module.named_children():
            if type(child) is FairseqDropout:
                setattr(module, name, QuickDropout(child.p, child.module_name))
