"""What a run's model has: parameters of its attention and in all, and bytes of key/value cache."""

from __future__ import annotations

from pathlib import Path

import torch
from fairseq import checkpoint_utils, tasks
from omegaconf import open_dict

from fairseq_mhe.common.files import write_json
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.prepare.data_folder import Dataset


def count(checkpoint: Path, data: Dataset, output: Path) -> None:
    """Build the checkpoint's model, without memory for its weights, count, and write JSON to ``output``.

    ``kv_bytes_per_token``: float32 bytes cached for each target token of each hypothesis while
    decoding; ``kv_bytes_per_source_token``: for each source token of each sentence, whatever the
    beam.
    """
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))["cfg"]
    with open_dict(cfg):
        cfg.task.data = str(data.binary)  # the folder may have been moved since
    task = tasks.setup_task(cfg.task)
    with torch.device("meta"):
        model = task.build_model(cfg.model)
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
