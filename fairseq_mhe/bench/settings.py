"""What is held fixed in one run of the benchmark, the same for every model that is compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch

#: fairseq's own ``transformer``, with biases and all, as it is shipped; every ratio is relative to
#: it.
STOCK = "stock"
#: CTranslate2 running the stock model with 8-bit integer weights.
CTRANSLATE2 = "ctranslate2_int8"
#: What follows a kind of attention whose model generates with 8-bit integer weights.
INT8 = "_int8"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Settings:
    """Sizes and data of a run.

    ``threads``: CPU threads of each measured process. ``vocabulary``: joined, shared by all
    embeddings.
    ``batches``: how many batches make a repetition of the training benchmark.
    ``seconds``: how long a repetition of the attention benchmark goes on calling one sublayer.
    """

    bench: str
    row: str
    device: str
    threads: int
    vocabulary: int
    seed: int
    batches: int = 1
    seconds: float = 0.2
