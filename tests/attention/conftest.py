"""Layers, inputs and fixtures that the attention tests share."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_mhe.attention import KINDS, Attention, build_attention
from fairseq_mhe.attention.generation import GenerationAttention
from fairseq_mhe.cli import load_user_dir

# The kinds of $FAIRSEQ_MHE_USER_DIR are tested like those of the package (docs/add_a_kind.md).
load_user_dir()
EMBED_DIM, HEADS = 24, 4
PLACES = ("encoder", "decoder", "cross")
#: Both sides compute in float64; only the order of additions differs.
EXACT = {"rtol": 0, "atol": 1e-12}


def make_layer(kind: str, dtype: torch.dtype = torch.float64, **options) -> Attention:
    """Build a layer whose weights are all large enough to matter to the output."""
    torch.manual_seed(7)
    sizes = options.pop("embed_dim", EMBED_DIM), options.pop("num_heads", HEADS)
    layer = build_attention(kind, *sizes, **options).to(dtype)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return layer.eval()


def fast(layer: Attention, place: str, shared_query: bool = False) -> Attention:
    """Return the form in which a sublayer decodes in this place: its own without plain heads."""
    if layer.why_not_foldable():
        return layer
    return GenerationAttention(layer, place != "cross", shared_query).eval()


def random(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return normal numbers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def right_padding(batch: int, length: int) -> Tensor:
    """Return a padding mask (B, S) in which sentence b ends b positions early."""
    return torch.arange(length).expand(batch, length) >= (length - torch.arange(batch)).unsqueeze(1)


def equation(
    layer: Any, x: Tensor, y: Tensor, padding: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Return output (T, B, C) and weights (H, B, T, S) of the paper's equation."""
    mask = torch.zeros(x.size(1), x.size(0), y.size(0), dtype=torch.bool)
    if padding is not None:
        mask |= padding[:, None, :]
    if causal:
        mask |= torch.ones(x.size(0), y.size(0), dtype=torch.bool).triu(1)
    return layer.equation(x, y, mask)


class Operators(TorchDispatchMode):
    """Records every operator that is no view, and how many bytes of new memory it wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any]] = []  # names and results
        self.written: list[int] = []  # bytes of each result

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        if not function.is_view:
            self.calls.append((function.overloadpacket.__name__, out))
            results = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            self.written += [x.untyped_storage().nbytes() for x in results]
        return out


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    """Run a test for every kind of attention."""
    return request.param


@pytest.fixture(params=["trained", "fast on a GPU", "fast on a CPU"])
def form(request: pytest.FixtureRequest) -> Callable[[Attention, str], Attention]:
    """Run a test for sublayers as they are trained, and as they generate."""
    if request.param == "trained":
        return lambda layer, place: layer
    return partial(fast, shared_query=request.param == "fast on a CPU")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    """Run a test for every place of attention in a Transformer."""
    return request.param
