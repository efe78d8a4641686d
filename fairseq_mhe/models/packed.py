"""Linear layers for inference on the CPU, with weights laid out once as oneDNN's kernel reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Numbers in a weight from which packing pays. (Measured with torch 2.13 on 2 cores of an AMD EPYC, 1 to 3,200 rows:
#: 512 to 32,768 features 1.3 to 6 times as fast, 512 to 2,048 and back 1.2 to 4, 512 to 512 1.1 to 1.7, but 512 to 64
#: only half as fast up to 5 rows.)
WORTH_PACKING = 512 * 512


class PackedLinear(nn.Linear):
    """A linear layer with the parameters of another one.

    Without gradients, on the CPU and in float32, it multiplies by a packed copy of the weight, which is made anew after
    the weight has changed, and dropped when the model is moved. Everywhere else it is a plain ``nn.Linear``. The copy
    is as large as the weight. The functions are those that torch.compile itself calls when it freezes weights; torch
    has no public name for them.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.training = linear.training
        self._packed: Tensor | None = None
        self._packed_from: tuple[int, int] | None = None
        if _packs(self.weight):
            self._packed_weight()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        if torch.is_grad_enabled() or not (_packs(x) and _packs(self.weight)):
            return F.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self._packed_weight(), self.bias, "none", [], "")

    @property
    def packed_bytes(self) -> int:
        """Memory that the packed copy takes."""
        return 0 if self._packed is None else self.weight.numel() * self.weight.element_size()

    def _packed_weight(self) -> Tensor:
        now = (self.weight.data_ptr(), self.weight._version)
        if self._packed is None or self._packed_from != now:
            self._packed, self._packed_from = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach()), now
        return self._packed

    def _apply(self, *args: Any, **kwargs: Any) -> PackedLinear:
        """Called by ``.to()``, ``.cuda()``, ``.half()`` and the like."""
        self._packed = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Without the packed copy, which can be neither copied nor saved."""
        return {**self.__dict__, "_packed": None}


def _packs(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32


def pack_linears(model: nn.Module) -> None:
    """Replace every linear layer of ``model`` that is worth it by a packed one, in place; parameters stay the same.

    Does nothing where torch was built without oneDNN.
    """
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear and child.weight.numel() >= WORTH_PACKING:
                setattr(parent, name, PackedLinear(child))
