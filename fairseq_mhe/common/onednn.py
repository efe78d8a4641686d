"""Let oneDNN keep the products that it compiled, which the next epoch's batches ask for again."""

import os

from fairseq_mhe.common.system import cores, memory

_CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
#: What users set who choose for themselves, the older name too.
_OWN_CHOICE = (_CAPACITY, "DNNL_PRIMITIVE_CACHE_CAPACITY")
#: oneDNN's own capacity, and enough for a small corpus: an epoch of the quickstart has some 4,000.
_USUAL, _MOST = 1024, 8192
#: What each takes, measured, and what as many trainings as there are cores may take for them.
_BYTES, _SHARE = 400_000, 1 / 4


def keep_compiled_products() -> None:
    """Raise the number of compiled products that are kept; for the process of a command, before the
    first of them is compiled. (torch has no call for it but the environment variable.)

    On a CPU products in bfloat16 are compiled for each shape, in a quarter of a millisecond and
    more. A batch of text has some twenty new shapes, an epoch thousands, so that of the 1,024 that
    oneDNN keeps few are still there when the next epoch brings the same. It reads the number when
    it compiles the first. In float32 nothing is compiled. Left alone where the environment says a
    number. (https://uxlfoundation.github.io/oneDNN/dev_guide_primitive_cache.html)
    (Measured in results/cpu/kept-products.md: the quickstart's epochs from the second on take 10 to
    19% less time.)
    """
    if any(name in os.environ for name in _OWN_CHOICE):
        return
    affordable = int(memory() * _SHARE / cores() / _BYTES)
    os.environ[_CAPACITY] = str(min(max(affordable, _USUAL), _MOST))
