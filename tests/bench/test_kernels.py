"""The kernel named is the one that ran; on a GPU none of ours falls back to plain matrix products."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

from fairseq_mhe.bench.attention import PLACES, AttentionWorkload
from fairseq_mhe.bench.kernels import FUSED, NONE, PLAIN, attention_kernel
from tests.bench.conftest import make_settings

#: Kinds whose keys and values are kept in as many heads of the same width, which fused kernels ask
#: for.
FUSIBLE = ("mha", "mhe_mul", "mhe_add", "sha", "mqa", "gqa", "skv", "el")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU: asserts which CUDA kernel runs"
)


def test_fused_plain_and_none() -> None:
    q = torch.randn(2, 2, 8, 16)
    assert attention_kernel(lambda: F.scaled_dot_product_attention(q, q, q)) == "flash (CPU)"
    assert attention_kernel(lambda: (q @ q.mT).softmax(-1) @ q) == PLAIN
    assert attention_kernel(lambda: q @ q.mT) == NONE


def kernels(
    kind: str, places: tuple[str, ...], dtypes: tuple[str, ...]
) -> dict[tuple[str, str], str]:
    """What runs on the GPU, by place and dtype."""
    found = {}
    for place, dtype in itertools.product(places, dtypes):
        workload = AttentionWorkload(kind, make_settings("attention", row="base", device="cuda"))
        workload.prepare({"place": place, "length": 128, "batch": 4, "dtype": dtype})
        workload.repetition()
        found[place, dtype] = workload.facts()["kernel"]
    return found


@needs_gpu
@pytest.mark.parametrize("kind", FUSIBLE)
def test_on_a_gpu_attention_is_fused(kind: str) -> None:
    found = kernels(kind, PLACES, ("float32", "bf16", "fp16"))
    assert {at: kernel for at, kernel in found.items() if kernel not in FUSED.values()} == {}


@needs_gpu
@pytest.mark.parametrize("kind", FUSIBLE)
def test_on_a_gpu_causal_attention_needs_no_mask(kind: str) -> None:
    """Of the fused kernels, one that knows causality and half precision by itself."""
    found = kernels(kind, ("decoder",), ("bf16", "fp16"))
    assert {at: kernel for at, kernel in found.items() if kernel not in ("flash", "cuDNN")} == {}
