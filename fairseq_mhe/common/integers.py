"""Whether CTranslate2's products of 8-bit integers are exact on this processor, and who is told."""

import os

import torch

from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import cpu_flags

#: Instructions that add up products of 8 bits in 32.
_EXACT = frozenset(("avx512_vnni", "avx_vnni"))
_TOLD = (
    "warning: on this processor, which has no VNNI, CTranslate2 may cut off sums of 8-bit "
    "products, so that int8 translates worse than its weights say; fairseq's int8 does not, nor on "
    "AMD's processors CTranslate2 with CT2_USE_MKL=1 in the environment, which is slow there"
)


def exact_in_ctranslate2() -> bool:
    """Whether it is known that sums of 8-bit products are not cut off there.

    On x86 without VNNI oneDNN, which it takes on AMD's processors, adds two products up in 16 bits
    and cuts them off at the largest of them. Of MKL, which it takes on Intel's, this is not known.
    (https://uxlfoundation.github.io/oneDNN/dev_guide_int8_computations.html)
    (Measured on an AMD EPYC of 2021, a model of width 128: of 1,000 translations 356 are those of
    float32, by MKL 781, in three times the time.)
    """
    flags = cpu_flags()
    vnni = "avx2" not in flags or not flags.isdisjoint(_EXACT)
    return vnni or os.environ.get("CT2_USE_MKL") == "1"


def tell_of_ctranslate2(cpu: bool) -> None:
    """Say so where they are not, if the processor translates: by ``cpu``, or without a GPU."""
    if (cpu or not torch.cuda.is_available()) and not exact_in_ctranslate2():
        say(_TOLD)
