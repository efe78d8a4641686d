"""Linear layers for inference on the CPU, with weights packed once: float32, bf16 or int8."""

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
#: Logits of a token that are computed exactly beside bf16. A beam search goes on with no more of a
#: hypothesis than its beam, 5 as a rule, besides the end of the sentence.
_EXACT = 6
#: Logits that are compared at once in the search for the greatest.
_BLOCK = 32


class PackedLinear(nn.Linear):
    """A linear layer with the parameters of another, and a copy of its weight packed for oneDNN.

    Without gradients, on the CPU and in float32, it multiplies by the packed copy, which does not
    follow a weight that is trained on; everywhere else it is a plain ``nn.Linear``. torch.compile
    calls the same functions, which have no public name.
    """

    ITEM_SIZE = 4  # bytes of a packed number
    INPUTS: tuple[torch.dtype, ...] = (torch.float32,)  # that the packed copy multiplies

    def __init__(self, linear: nn.Linear) -> None:
        # The same parameters, and what a `ScaledLinear` adds.
        vars(self).update(vars(linear))
        self._packed: Any = self._pack()

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        on_cpu = x.device.type == "cpu" and x.dtype in self.INPUTS
        if torch.is_grad_enabled() or not on_cpu:
            return F.linear(x, self.multiplied, self.bias)
        return self._multiply(x, self._packed)

    @property
    def multiplied(self) -> Tensor:
        """(out, in)."""
        weight: Tensor = getattr(self, "product", self.weight)
        return weight

    @property
    def packed_bytes(self) -> int:
        """Of the packed copy, without the scales of `Int8Linear`."""
        return self.ITEM_SIZE * self.weight.numel()

    def _pack(self) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(self.multiplied.detach())

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")


class Bf16Linear(PackedLinear):
    """With inputs and outputs in bfloat16, summed in float32: 2 to 6 times as fast with AMX."""

    ITEM_SIZE = 2
    INPUTS = (torch.float32, torch.bfloat16)

    def _pack(self) -> Any:
        bias = None if self.bias is None else self.bias.detach().bfloat16()
        weight = self.multiplied.detach().bfloat16()
        return torch.ops.mkldnn._reorder_linear_weight(weight), bias

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return self._rounded(x, packed).float()

    def _rounded(self, x: Tensor, packed: Any) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        y: Tensor = product(x.bfloat16(), *packed, "none", [], "")
        return y


class Bf16Inner(Bf16Linear):
    """The first layer of a feed-forward network: the second one wants its outputs in bfloat16."""

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return self._rounded(x, packed)


class Bf16Logits(Bf16Linear):
    """The output projection in bfloat16, but for each token's greatest logits in float32.

    A beam search chooses among these, which bfloat16 would round to multiples of 1/16.
    """

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        x, batch = x.flatten(0, -2), x.shape[:-1]  # (N, C)
        logits = super()._multiply(x, packed)  # (N, V)
        best = _greatest(logits)  # (N, k)
        weights = self.multiplied[best]  # (N, k, C)
        exact = torch.einsum("nkc,nc->nk", weights, x)
        if self.bias is not None:
            exact += self.bias[best]
        logits.scatter_(1, best, exact)
        return logits.unflatten(0, batch)  # (..., V)


def _greatest(logits: Tensor) -> Tensor:
    """Indices of the ``_EXACT`` greatest logits of each row, (N, V) -> (N, k).

    They are in the blocks of greatest maxima: a third of the time of torch.topk of whole rows.
    """
    blocks = logits.shape[1] // _BLOCK
    in_blocks = blocks * _BLOCK
    whole = logits[:, :in_blocks].unflatten(1, (_BLOCK, blocks))
    best = whole.amax(1).topk(min(_EXACT, blocks)).indices  # (N, k)
    members = best.unsqueeze(-1) + blocks * torch.arange(_BLOCK)  # (N, k, _BLOCK)
    rest = torch.arange(in_blocks, logits.shape[1]).expand(len(logits), -1)
    candidates = torch.cat((members.flatten(1), rest), dim=1)
    count = min(_EXACT, candidates.shape[1])
    chosen = logits.gather(1, candidates).topk(count).indices
    return candidates.gather(1, chosen)


class Int8Linear(PackedLinear):
    """With 8-bit integers: several times as fast; a sentence depends slightly on its batch.

    Each output's weights are multiples of a 127th of the greatest, a call's inputs of 128 levels
    (FBGEMM's dynamic quantisation; 8 bits would overflow where a processor has no VNNI).
    """

    ITEM_SIZE = 1

    def _pack(self) -> Any:
        weight = self.multiplied.detach()
        greatest = weight.abs().amax(dim=1)  # (out,)
        scales = greatest.clamp(min=torch.finfo(weight.dtype).tiny) / 127
        zeros = torch.zeros(self.out_features, dtype=torch.int64)
        with warnings.catch_warnings():
            # FBGEMM, the fastest product, takes no other type of tensor yet.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        bias = None if self.bias is None else self.bias.detach()
        return torch.ops.quantized.linear_prepack(rounded, bias)

    def _multiply(self, x: Tensor, packed: Any) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, packed, reduce_range=True)


def int8_available() -> bool:
    """Whether torch has the products of :class:`Int8Linear` for this processor."""
    return torch.backends.quantized.engine in ("x86", "fbgemm")


def _onednn_available() -> bool:
    has_product = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and has_product


def bf16_available() -> bool:
    """Whether torch has the products of :class:`Bf16Linear` for this processor."""
    return _onednn_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def pack_linears(model: nn.Module, precision: str = "float32") -> None:
    """Replace each linear layer of ``model`` that is worth it by a packed one; parameters stay.

    ``precision``: of products, ``float32``, ``bf16``, ``int8``, or ``auto``: bf16 where the
    processor has instructions for it (faster for any number of rows), else float32, which does
    nothing without oneDNN; ValueError of another, or where bf16 or int8 cannot be.
    """
    weight = next(model.parameters())
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    if precision == "auto":
        faster = on_cpu and bf16_available() and has_fast_bf16()
        precision = "bf16" if faster else "float32"
    kinds: dict[str, Any] = {
        "float32": (PackedLinear, _onednn_available(), ""),
        "bf16": (Bf16Linear, bf16_available(), "a processor with AVX-512"),
        "int8": (Int8Linear, int8_available(), "an x86 processor"),
    }
    if precision not in kinds:
        known = ", ".join((*kinds, "auto"))
        raise ValueError(
            f"unknown generation_precision {precision!r}; choose one of: {known}"
        )
    kind, available, processor = kinds[precision]
    if not (on_cpu and available):
        if precision == "float32":
            return
        raise ValueError(
            f"generation in {precision} is for a float32 model on {processor}: leave it out, or "
            "use --cpu and no --fp16"
        )
    by_name: dict[str, Any] = {}
    if precision == "bf16":
        by_name = {"fc1": Bf16Inner, "output_projection": Bf16Logits}
    child: Any
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            plain = type(child) in (nn.Linear, ScaledLinear)
            if plain and child.weight.numel() >= WORTH_PACKING:
                setattr(parent, name, by_name.get(name, kind)(child))
