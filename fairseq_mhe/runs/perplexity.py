"""The loss of a language model on its validation text, every block counted once."""

from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils

_AT_ONCE = 32


@torch.inference_mode()
def nats_of(
    checkpoint: Path, data: Path, subset: str = "valid", gpu: bool = False
) -> dict[str, Any]:
    """Mean negative log-likelihood of what the model has to say: in nats, of how many subwords.

    A masked model is asked for those that its task masks, drawn by the seed that it was trained
    with, a causal one for all. ``data``: the binary text, wherever it lay in training; ``gpu``:
    compute on a GPU.

    Raises:
        ErrorExit: the checkpoint or its data cannot be read.
    """
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    model = models[0].eval()
    if gpu:
        model.cuda()
    task.load_dataset(subset)
    of = "masked subwords" if hasattr(task, "mask_idx") else "all subwords"
    batches = task.get_batch_iterator(
        task.dataset(subset), max_sentences=_AT_ONCE, required_batch_size_multiple=1
    ).next_epoch_itr(shuffle=False)
    total = torch.zeros((), dtype=torch.float64)
    subwords = 0
    for batch in batches:
        batch = utils.move_to_cuda(batch) if gpu else batch
        logits = model(**batch["net_input"])  # (B, T, vocabulary) first
        target = model.get_targets(batch, logits)  # (B, T)
        asked = target.ne(task.source_dictionary.pad())
        scores = model.get_normalized_probs(logits, log_probs=True, sample=batch)
        said = scores.float()[asked].gather(-1, target[asked].unsqueeze(-1))
        total -= said.double().sum().cpu()
        subwords += int(asked.sum())
    return {"of": of, "nats": float(total) / max(1, subwords), "subwords": subwords}
