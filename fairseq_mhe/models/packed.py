"""Linear layers for inference on the CPU, with weights packed once: float32, bf16 or int8."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention.mhe import ScaledLinear
from fairseq_mhe.common.cpu import has_fast_bf16

#: Numbers in a weight from which packing pays. (Measured with torch 2.13 on 2 cores of an AMD EPYC,
#: 1 to 3,200 rows: 512 to 32,768 features 1.3 to 6 times as fast, 512 to 2,048 and back 1.2 to 4,
#: 512 to 512 1.1 to 1.7, but 512 to 64 only half as fast up to 5 rows.)
WORTH_PACKING = 512 * 512
#: The greatest 8-bit integer; weights are rounded to -127 to 127.
_GREATEST = 127
#: Logits of a token that are computed exactly beside bf16: fairseq's search takes two a hypothesis.
_EXACT = 10
#: Logits that are compared at once in the search for the greatest.
_BLOCK = 32


class PackedLinear(nn.Linear):
    """A linear layer with the parameters of another, and a copy of its weight packed for oneDNN.

    Without gradients, on the CPU and in float32, it multiplies by the packed copy; everywhere else
    it is a plain ``nn.Linear``. The copy is made once: it does not follow a weight that is trained
    on. The functions are those that torch.compile itself calls when it freezes weights; torch has
    no public name for them.
    """

    #: Bytes of a packed number.
    ITEM_SIZE = 4
    product: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        product = linear.product if isinstance(linear, ScaledLinear) else None
        self.register_buffer("product", product, persistent=False)
        self.training = linear.training
        self._packed: Any = self._pack()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        if self._packed is None or torch.is_grad_enabled() or not _packs(x):
            return F.linear(x, self.multiplied, self.bias)
        return self._multiply(x, self._packed)

    @property
    def multiplied(self) -> Tensor:
        """(out, in): what inputs are multiplied by."""
        return self.weight if self.product is None else self.product

    @property
    def packed_bytes(self) -> int:
        """Memory that the packed copy takes (less a scale for each output of `Int8Linear`)."""
        return 0 if self._packed is None else self.ITEM_SIZE * self.weight.numel()

    def _pack(self) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(self.multiplied.detach())

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")

    def _apply(self, *args: Any, **kwargs: Any) -> PackedLinear:
        """Called by ``.to()``, ``.cuda()``, ``.half()`` and the like."""
        super()._apply(*args, **kwargs)
        self._packed = self._pack() if _packs(self.weight) else None
        return self


class Bf16Linear(PackedLinear):
    """The same with products in bfloat16, summed in float32: 2 to 6 times as fast with AMX.

    Inputs and outputs are rounded to 8 bits of mantissa.
    """

    ITEM_SIZE = 2

    def _pack(self) -> Any:
        bias = None if self.bias is None else self.bias.detach().bfloat16()
        weight = self.multiplied.detach().bfloat16()
        return torch.ops.mkldnn._reorder_linear_weight(weight), bias

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        weight, bias = packed
        x = x.bfloat16()
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "").float()


class Bf16Logits(Bf16Linear):
    """The output projection in bfloat16, but for each token's greatest logits in float32.

    A beam search chooses among the greatest logits, which bfloat16 would round to multiples of
    1/16; the others count only in the sum of the softmax.
    """

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        logits = super()._multiply(x, packed).flatten(0, -2)  # (N, V)
        best = _greatest(logits)  # (N, k)
        exact = torch.einsum("nkc,nc->nk", self.multiplied[best], x.flatten(0, -2))
        if self.bias is not None:
            exact += self.bias[best]
        return logits.scatter_(1, best, exact).view(*x.shape[:-1], -1)  # (..., V)


def _greatest(logits: Tensor) -> Tensor:
    """Indices of the ``_EXACT`` greatest logits of each row, (N, V) -> (N, k).

    The greatest logits are in the blocks with the greatest maxima. torch.topk over a whole row
    takes three times as long.
    """
    blocks = logits.shape[1] // _BLOCK
    in_blocks = blocks * _BLOCK
    maxima = logits[:, :in_blocks].unflatten(1, (_BLOCK, blocks)).amax(1)  # (N, blocks)
    best = maxima.topk(min(_EXACT, blocks)).indices.unsqueeze(-1)  # (N, k, 1)
    candidates = (best + blocks * torch.arange(_BLOCK)).flatten(1)  # (N, k * _BLOCK)
    rest = torch.arange(in_blocks, logits.shape[1]).expand(len(logits), -1)
    candidates = torch.cat((candidates, rest), dim=1)
    count = min(_EXACT, candidates.shape[1])
    return candidates.gather(1, logits.gather(1, candidates).topk(count).indices)


class Int8Linear(PackedLinear):
    """The same with 8-bit integers: an approximation, several times as fast.

    Each output feature's weights are rounded to multiples of a 127th of the greatest of them, the
    inputs of a call to 128 levels between their least and their greatest (FBGEMM's dynamic
    quantisation; 8 bits would overflow where a processor has no VNNI). So what a sentence gets
    depends, slightly, on the batch that it is in.
    """

    ITEM_SIZE = 1

    def _pack(self) -> Any:
        weight = self.multiplied.detach()
        greatest = (
            weight.abs().amax(dim=1).clamp(min=torch.finfo(weight.dtype).tiny)
        )  # (out,)
        scales = greatest / _GREATEST
        zeros = torch.zeros(self.out_features, dtype=torch.int64)
        with warnings.catch_warnings():
            # torch means to replace this type of tensor one day, but FBGEMM, its fastest product,
            # takes no other yet.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if self.bias is None else self.bias.detach()
        return torch.ops.quantized.linear_prepack(rounded, bias)

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, packed, reduce_range=True)


def _packs(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32


def int8_available() -> bool:
    """Whether torch has the 8-bit products of :class:`Int8Linear` for this processor."""
    return torch.backends.quantized.engine in ("x86", "fbgemm")


def _onednn_available() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    )


def bf16_available() -> bool:
    """Whether torch has the products of :class:`Bf16Linear` for this processor."""
    return _onednn_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def pack_linears(model: nn.Module, precision: str = "float32") -> None:
    """Replace each linear layer of ``model`` that is worth it by a packed one, in place.

    Parameters stay the same. Does nothing in float32 where torch was built without oneDNN.

    Args:
        model: ready for inference.
        precision: of products: ``float32``, ``bf16``, ``int8``, or ``auto``: bf16 where the
            processor has instructions for it (there it is faster for any number of rows), else
            float32.

    Raises:
        ValueError: bf16 or int8, and the model is not in float32 on a processor that has it.
    """
    on_cpu = _packs(next(model.parameters()))
    if precision == "auto":
        precision = "bf16" if on_cpu and bf16_available() and has_fast_bf16() else "float32"
    if precision == "int8" and not (on_cpu and int8_available()):
        raise ValueError(
            "int8_generation is for a float32 model on an x86 processor: leave it out, or use "
            "--cpu and no --fp16"
        )
    if precision == "bf16" and not (on_cpu and bf16_available()):
        raise ValueError(
            "generation in bf16 is for a float32 model on a processor with AVX-512: leave it out, "
            "or use --cpu and no --fp16"
        )
    if precision == "float32" and not (on_cpu and _onednn_available()):
        return
    kind = {"float32": PackedLinear, "bf16": Bf16Linear, "int8": Int8Linear}[precision]
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if not isinstance(child, nn.Linear) or child.weight.numel() < WORTH_PACKING:
                continue
            if type(child) in (nn.Linear, ScaledLinear):
                is_bf16_output = kind is Bf16Linear and name == "output_projection"
                setattr(parent, name, (Bf16Logits if is_bf16_output else kind)(child))
