"""Linear layers for CPU inference whose weights are packed once, in float32, bf16 or int8."""

import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.backends import mkldnn as onednn
from torch.nn import functional as F

from fairseq_mhe.attention.few_shapes import Linear
from fairseq_mhe.common.cpu import has_fast_bf16

#: Packing pays from this size of weight. (torch 2.13, one core of an AMD EPYC, 5 to 320 rows:
#: with AVX-512 512 x 192 runs 1.4 to 2.3 times as fast in float32, 256 x 256 1 to 2 times, 512 x 64
#: at times 0.7. With AVX2 512 x 192 runs 0.6 to 1 times as fast in float32, 0.8 to 1.4 in int8.)
WORTH_PACKING = 512 * 192
#: Weights of this size are rounded to bf16; smaller ones are packed in float32.
WORTH_BF16 = 512 * 512
#: Least width of `Bf16Logits`: below, finding the greatest logits takes longer than bf16 saves.
WIDE_LOGITS = 512
#: How many of a token's logits `Bf16Logits` computes in float32. Beam search continues a hypothesis
#: with at most as many words as the beam, usually 5, and the end of the sentence.
_EXACT = 6
#: How many logits `_greatest` compares at once.
_BLOCK = 32


class _Shared:
    """Holds a packed weight. Nothing changes it, and torch cannot copy it: copies share it."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class PackedLinear(nn.Linear):
    """A linear layer that shares another's parameters and adds a copy of the weight for oneDNN.

    On a CPU without gradients it multiplies ``INPUTS`` by the packed copy; otherwise it is a plain
    ``nn.Linear``. Training does not update the copy. torch.compile, too, calls these functions
    of oneDNN, which have no public name.
    """

    ITEM_SIZE = 4  # bytes of a packed number
    INPUTS: tuple[torch.dtype, ...] = (torch.float32,)  # these use the packed copy

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)  # nn.Linear's would allocate another weight
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._packed = _Shared(self._pack())

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        on_cpu = x.device.type == "cpu" and x.dtype in self.INPUTS
        if torch.is_grad_enabled() or not on_cpu:
            return F.linear(x, self.weight, self.bias)
        return self._multiply(x, self._packed.weight)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed copy, without the scales of `Int8Linear`."""
        return self.ITEM_SIZE * self.weight.numel()

    def _pack(self) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(self.weight.detach())

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")


class Bf16Linear(PackedLinear):
    """Multiplies in bfloat16 and adds up in float32: with AMX 2 to 6 times as fast as float32."""

    ITEM_SIZE = 2
    INPUTS = (torch.float32, torch.bfloat16)
    OUTPUT = torch.float32

    def _pack(self) -> Any:
        bias = None if self.bias is None else self.bias.detach().bfloat16()
        weight = self.weight.detach().bfloat16()
        return torch.ops.mkldnn._reorder_linear_weight(weight), bias

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        y: Tensor = product(x.bfloat16(), *packed, "none", [], "")
        return y.to(self.OUTPUT)


class Bf16Inner(Bf16Linear):
    """The first layer of a feed-forward network, with outputs in bfloat16 for the second layer."""

    OUTPUT = torch.bfloat16


class Bf16Logits(Bf16Linear):
    """The output projection in bfloat16, with each token's greatest logits in float32.

    Beam search chooses among these. bfloat16 would round logits from 8 to 16 to multiples of 1/16.
    """

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        x, batch = x.flatten(0, -2), x.shape[:-1]  # (N, C)
        logits = super()._multiply(x, packed)  # (N, V)
        best = _greatest(logits)  # (N, k)
        weights = self.weight[best]  # (N, k, C)
        exact = torch.einsum("nkc,nc->nk", weights, x)  # (N, k)
        if self.bias is not None:
            exact += self.bias[best]
        logits.scatter_(1, best, exact)
        return logits.unflatten(0, batch)  # (..., V)


def _greatest(logits: Tensor) -> Tensor:
    """Indices of the ``_EXACT`` greatest logits of each row, (N, V) -> (N, k).

    They lie in the blocks with the greatest maxima; torch.topk of whole rows takes 3 times as long.
    """
    blocks = logits.shape[1] // _BLOCK
    in_blocks = blocks * _BLOCK
    # Block j holds the logits j, j + blocks, j + 2 * blocks and so on.
    by_block = logits[:, :in_blocks].unflatten(1, (_BLOCK, blocks))  # (N, _BLOCK, blocks)
    best_blocks = by_block.amax(1).topk(min(_EXACT, blocks)).indices  # (N, k)
    members = best_blocks.unsqueeze(-1) + blocks * torch.arange(_BLOCK)  # (N, k, _BLOCK)
    rest = torch.arange(in_blocks, logits.shape[1]).expand(len(logits), -1)
    candidates = torch.cat((members.flatten(1), rest), dim=1)
    count = min(_EXACT, candidates.shape[1])
    chosen = logits.gather(1, candidates).topk(count).indices
    return candidates.gather(1, chosen)


class Int8Linear(PackedLinear):
    """Multiplies 8-bit integers, several times as fast; outputs depend slightly on the batch.

    The weights of an output are rounded to multiples of 1/127 of the greatest, the inputs of a call
    to 128 levels (FBGEMM's dynamic quantisation; 256 would overflow on processors without VNNI).
    """

    ITEM_SIZE = 1

    def _pack(self) -> Any:
        weight = self.weight.detach()
        greatest = weight.abs().amax(dim=1)  # (out,)
        scales = greatest.clamp(min=torch.finfo(weight.dtype).tiny) / 127
        zeros = torch.zeros(self.out_features, dtype=torch.int64)
        with warnings.catch_warnings():
            # torch calls this type of tensor deprecated, but FBGEMM, the fastest, takes no other.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if self.bias is None else self.bias.detach()
        return torch.ops.quantized.linear_prepack(quantized, bias)

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, packed, reduce_range=True)


def int8_available() -> bool:
    """Return whether torch can run `Int8Linear` on this processor."""
    return torch.backends.quantized.engine in ("x86", "fbgemm")


def bf16_available() -> bool:
    """Return whether torch can run `Bf16Linear` on this processor."""
    return onednn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def pack_linears(model: nn.Module, precision: str = "float32") -> None:
    """Replace linear layers with large weights by packed ones, which keep the parameters.

    ``precision``: float32 (changes nothing without oneDNN), bf16, int8, or auto: bf16 if the
    processor has instructions for it. Raises ValueError for others, or if bf16 or int8 cannot run.
    """
    layer_class = _layer_class(next(model.parameters()), precision)
    if layer_class is None:
        return
    child: Any
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if type(child) not in (nn.Linear, Linear):
                continue
            if child.weight.numel() >= WORTH_PACKING:
                is_bf16 = layer_class is Bf16Linear
                chosen = _bf16_class(name, child) if is_bf16 else layer_class
                setattr(parent, name, chosen(child))


def _bf16_class(name: str, layer: nn.Linear) -> type[PackedLinear]:
    """Return the packed layer for a model's ``layer`` of this name if the precision is bf16."""
    if layer.weight.numel() < WORTH_BF16:
        return PackedLinear
    if name == "output_projection":
        return Bf16Logits if layer.in_features >= WIDE_LOGITS else PackedLinear
    return Bf16Inner if name == "fc1" else Bf16Linear


def _layer_class(weight: Tensor, precision: str) -> type[nn.Module] | None:
    """Return the packed layer for a model with this weight; None: float32 has nothing to gain.

    Raises ValueError as `pack_linears` does.
    """
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    if precision == "auto":
        faster = on_cpu and bf16_available() and has_fast_bf16()
        precision = "bf16" if faster else "float32"
    classes: dict[str, Any] = {
        "float32": (PackedLinear, onednn.is_available(), ""),
        "bf16": (Bf16Linear, bf16_available(), "a processor with AVX-512"),
        "int8": (Int8Linear, int8_available(), "an x86 processor"),
    }
    if precision not in classes:
        known = ", ".join((*classes, "auto"))
        unknown = f"unknown generation_precision {precision!r}"
        raise ValueError(f"{unknown}; choose one of: {known}")
    layer_class, available, processor = classes[precision]
    if on_cpu and available:
        return layer_class
    if precision == "float32":
        return None
    raise ValueError(
        f"generation in {precision} is for a float32 model on {processor}: leave the option "
        "out, or use --cpu and no --fp16"
    )
