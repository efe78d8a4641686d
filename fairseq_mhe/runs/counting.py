"""What a run's model has: parameters of its attention and in all, and bytes of key/value cache."""

from __future__ import annotations

from pathlib import Path

from fairseq_mhe.checkpoints.checkpoint import open_on_meta
from fairseq_mhe.common.files import write_json
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters


def count(checkpoint: Path, output: Path) -> None:
    """Build the checkpoint's model, without memory for its weights, count, and write JSON to ``output``.

    ``kv_bytes_per_token``: float32 bytes cached for each target token of each hypothesis while
    decoding; ``kv_bytes_per_source_token``: for each source token of each sentence, whatever the
    beam.
    """
    model = open_on_meta(checkpoint)
    cache = cache_bytes(model, bytes_per_value=4)
    write_json(
        output,
        {
            "attention_parameters": attention_parameters(model),
            "total_parameters": total_parameters(model),
            "kv_bytes_per_token": cache.per_target_token,
            "kv_bytes_per_source_token": cache.per_source_token,
        },
    )
