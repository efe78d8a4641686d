"""fairseq's dropout with masks that are drawn quickly, in the places of a model's."""

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_mhe.attention.dropout import drop


class QuickDropout(FairseqDropout):
    """fairseq's; in bfloat16 on a CPU as `drop` has it."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drop values of x (any shape)."""
        active = self.p > 0 and (self.training or self.apply_during_inference)
        if not active or x.dtype != torch.bfloat16:
            return super().forward(x, inplace)
        return drop(x, self.p)


def quicken_dropout(model: nn.Module) -> None:
    """Put it in the places of fairseq's in a model."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is FairseqDropout:
                quick = QuickDropout(child.p, child.module_name)
                quick.apply_during_inference = child.apply_during_inference
                setattr(module, name, quick)
