"""Which attention kernel torch really runs, read from the operators that a call ends in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

#: Operators that torch's scaled_dot_product_attention may choose, and what people call them.
FUSED = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash (CPU)",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cuDNN",
}
PLAIN = "plain"
NONE = "none"


class _Operators(TorchDispatchMode):
    """Notes the name of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def attention_kernel(call: Callable[[], object]) -> str:
    """The kernel that ``call`` uses: a value of ``FUSED``; ``PLAIN`` for a softmax of its own; ``NONE`` without one."""
    with _Operators() as operators:
        call()
    fused = [label for name, label in FUSED.items() if name in operators.names]
    if fused:
        return ", ".join(fused)
    return PLAIN if any("softmax" in name for name in operators.names) else NONE
