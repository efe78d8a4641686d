"""What a benchmark compares: stock fairseq in several settings, kinds of attention, engines."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from fairseq_mhe.common.cpu import keep_freed_memory, tuning
from fairseq_mhe.common.errors import UserError

#: fairseq's own ``transformer`` as it comes, with biases; ratios are relative to it.
STOCK = "stock"


@dataclass(frozen=True)
class Variant:
    """A model and how it runs; without ``kind`` the model is stock fairseq's."""

    name: str
    kind: str = ""
    #: Of generation: generation_precision of a kind, weights of stock, compute type of CTranslate2.
    precision: str = ""
    #: For CPUs, as our commands tune them.
    is_tuned: bool = True
    #: Whether torch may choose cuDNN's attention; our kinds avoid it anyway.
    has_cudnn: bool = True
    #: Whether a kind runs by CUDA graphs on a GPU.
    has_graphs: bool = True
    by_ctranslate2: bool = False

    def begin(self) -> None:
        """Set what the process of this variant needs before its first product."""
        if self.is_tuned:
            keep_freed_memory()
            variables = tuning()
            # glibc reads it when a process starts, and `keep_freed_memory` obeys it.
            variables.pop("GLIBC_TUNABLES", None)
            os.environ.update(variables)
        if not self.has_cudnn:
            torch.backends.cuda.enable_cudnn_sdp(False)
        if not self.has_graphs:
            os.environ["FAIRSEQ_MHE_CUDA_GRAPHS"] = "0"


def stock_variants(device: str) -> Iterator[Variant]:
    """Yield stock fairseq as it comes, and in each setting that may be faster on ``device``."""
    yield Variant(STOCK, is_tuned=False)
    if device == "cpu":
        yield Variant("stock_tuned")
    else:
        yield Variant("stock_without_cudnn", has_cudnn=False)


def kind_variants(kinds: Iterable[str], precision: str = "") -> Iterator[Variant]:
    """Yield each kind of attention, generating in ``precision`` if it is given."""
    suffix = f"_{precision}" if precision else ""
    for kind in kinds:
        yield Variant(kind + suffix, kind, precision)


def variants_without_graphs(device: str, kinds: Iterable[str]) -> Iterator[Variant]:
    """Yield each kind without CUDA graphs; UserError on a CPU, which has none."""
    if device == "cpu":
        raise UserError("--without-graphs is for --device cuda: leave it out on a CPU")
    for kind in kinds:
        yield Variant(f"{kind}_without_graphs", kind, has_graphs=False)


def ctranslate2_variants(
    kinds: Iterable[str], precisions: Iterable[str]
) -> Iterator[Variant]:
    """Yield stock's model and each kind in CTranslate2, in each of its ``precisions``."""
    for precision in precisions:
        for kind in ("", *kinds):
            name = f"{kind}_ctranslate2_{precision}".removeprefix("_")
            yield Variant(name, kind, precision, by_ctranslate2=True)
