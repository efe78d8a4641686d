"""Work-arounds for fairseq's bugs; `apply` replaces single functions by wrappers.

Importing this module changes nothing. tests/test_fairseq_fixes.py fails for a fix that is no longer
needed.
"""

import functools
import importlib.util
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from fairseq import checkpoint_utils, optim, options, utils
from fairseq.data import Dictionary, data_utils
from fairseq.file_io import PathManager
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.quiet import quieten_start_up
from fairseq_mhe.models.optimizer import FP16Optimizer
from fairseq_mhe.safe_loading import evaluate_literals_only

_Function = Callable[..., Any]


@functools.cache  # a second call does nothing
def apply() -> None:
    """Replace fairseq's functions; `fairseq_mhe.fix_fairseq` calls this."""
    if "fairseq_cli" in sys.modules:
        quieten_start_up()
    if "fairseq_cli.eval_lm" in sys.modules:
        # eval_lm's own logging.basicConfig() comes too late: an import of fairseq called it.
        utils.reset_logging()
    logging.getLogger("fairseq.trainer").addFilter(_not_about_biases)
    # fairseq's data sets use np.compat.long, which NumPy 2 lacks. This can go when they use int.
    vars(np).setdefault("compat", SimpleNamespace(long=int))
    evaluate_literals_only()
    optim.FP16Optimizer = FP16Optimizer  # the Trainer looks the class up here
    _replace(options, "parse_args_and_arch", _parse)
    _replace(data_utils, "load_indexed_dataset", _name_damaged_data)
    _replace(Dictionary, "add_from_file", _name_damaged_data)
    _replace(data_utils, "batch_by_size", _keep_the_last_batch)
    _replace(FairseqTask, "get_batch_iterator", _know_the_epoch)
    _replace(checkpoint_utils, "save_checkpoint", _save_interval)
    _replace(Trainer, "state_dict", _save_float32)
    _replace(Trainer, "load_checkpoint", _load_float32)


def _replace(owner: Any, name: str, replacement: _Function) -> None:
    """Replace a function of a module or class; ``replacement`` gets the original first."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, replaced)


def _not_about_biases(record: logging.LogRecord) -> bool:
    """Return False for log lines that call biases shared: fairseq means missing ones (None)."""
    return not re.fullmatch("detected shared parameter: .*bias", record.getMessage())


def _parse(
    parse: Any, parser: Any, input_args: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Parse options; mend --bf16, --fp16, a missing --task; refuse --attention for stock models."""
    words = " ".join(sys.argv[1:] if input_args is None else input_args)
    arch = re.search(r"(?<!\S)(?:--arch|-a)[ =](\S+)", words)
    ours = re.search(r"(?<!\S)--((en|de)coder-|cross-)?attention(?=[ =])", words)
    module = getattr(ARCH_MODEL_REGISTRY.get(arch[1]), "__module__", "") if arch else ""
    # fairseq's fconv and lstm models have options of these names themselves.
    if arch and ours and re.match(r"fairseq\.(?!models\.(fconv|lstm))", module):
        raise UserError(
            f"{ours[0]} needs an architecture of fairseq_mhe, such as --arch "
            f"transformer_mhe_base, not --arch {arch[1]}"
        )
    parser.set_defaults(task=parser.get_default("task") or "translation")  # for validate
    parsed = parse(parser, input_args, *args, **kwargs)
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    values = vars(namespace)
    # fairseq's --bf16 turns on --tpu, which disables the GPU. This can go with that.
    if values.get("bf16") and importlib.util.find_spec("torch_xla") is None:
        namespace.tpu = False
    # With --fp16 fairseq allocates gradients on a GPU, also on a CPU. This can go with that.
    if values.get("fp16") and (values.get("cpu") or not torch.cuda.is_available()):
        namespace.fp16_no_flatten_grads = True
    return parsed


def _name_damaged_data(read: Any, *args: Any, **kwargs: Any) -> Any:
    """Report data or a dictionary that cannot be read, in one line with its path."""
    path = next((word for word in args if isinstance(word, str)), None)
    try:
        data = read(*args, **kwargs)
    except Exception as error:  # its type depends on the damage
        if path is None:  # add_from_file calls itself with the open file
            raise
        raise UserError(f"cannot read {path}: {error}; prepare the data again") from error
    if data is None and Path(f"{path}.idx").exists():
        raise UserError(f"{path}.bin is missing: prepare the data again")
    return data


def _keep_the_last_batch(
    batch_by_size: Any, indices: Any, *args: Any, **kwargs: Any
) -> Any:
    """Add the last batch, which fairseq drops if its size is not the required multiple.

    The default of --required-batch-size-multiple is 8. fairseq drops the batch silently, in every
    command. This can go when fairseq's issues 5036, 5094 and 5351 are closed.
    """
    batches = batch_by_size(indices, *args, **kwargs)
    # Batches are consecutive slices of indices. (With fixed shapes fairseq loses nothing.)
    kept = sum(len(batch) for batch in batches)
    return [*batches, indices[kept:]] if kept < len(indices) else batches


def _know_the_epoch(build: Any, task: Any, dataset: Any, *args: Any, **kw: Any) -> Any:
    """Batch a resumed training's data as in epoch 1, and let every epoch mask other words.

    fairseq draws the sentences of batches by the epoch in which it starts or resumes, so the rest
    of that epoch would repeat some sentences and leave out others. Its worker processes never learn
    that an epoch ends. This can go when fairseq does neither.
    """
    epoch = kw.get("epoch", 1)
    renewed = kw.get("disable_iterator_cache") or kw.get("update_epoch_batch_itr")
    if epoch > 1 and not renewed and task.can_reuse_epoch_itr(dataset):
        batches = build(task, dataset, *args, **{**kw, "epoch": 1})
        dataset.set_epoch(epoch)
    else:
        batches = build(task, dataset, *args, **kw)
    batches.persistent_workers = False
    return batches


def _save_interval(save: Any, cfg: Any, trainer: Any, epoch_itr: Any, loss: Any) -> Any:
    """Write the checkpoint of --save-interval-updates even if the update ends an epoch.

    fairseq then writes only checkpoint_last.pt and the epoch's checkpoint, so an average of the
    last N would include an older one instead. This can go when fairseq writes both.
    """
    updates = trainer.get_num_updates()
    interval = cfg.save_interval_updates
    if interval > 0 and updates % interval == 0 and epoch_itr.end_of_epoch():
        # This checkpoint comes first: after a kill between the two calls nothing would write it.
        inside_epoch = SimpleNamespace(
            epoch=epoch_itr.epoch,
            state_dict=epoch_itr.state_dict,
            end_of_epoch=lambda: False,
        )
        saved = save(cfg, trainer, inside_epoch, loss)
        if cfg.no_epoch_checkpoints:
            return saved
    return save(cfg, trainer, epoch_itr, loss)


def _save_float32(as_state: Any, trainer: Trainer) -> dict[str, Any]:
    """Save the optimizer's float32 weights under ``--bf16`` and ``--fp16``, and `_patience`.

    fairseq saves the model's weights, which bfloat16 rounds to 8 bits, and no count. This can go
    when fairseq saves both.
    """
    state: dict[str, Any] = as_state(trainer)
    for name, full, _ in _float32_weights(trainer):
        state["model"][name] = full.data
    if patience := _patience():
        state["extra_state"]["patience"] = patience
    return state


def _patience() -> dict[str, Any]:
    """Return what fairseq-train counts for ``--patience``; empty without this option."""
    train = sys.modules.get("fairseq_cli.train", sys.modules["__main__"])
    return vars(getattr(train, "should_stop_early", _patience))


def _load_float32(load: Any, trainer: Any, path: str, *args: Any, **kw: Any) -> Any:
    """Resume from what `_save_float32` saved."""
    extra_state = load(trainer, path, *args, **kw)
    if extra_state and not kw.get("reset_meters"):  # not at the start of a fine-tuning
        _patience().update(extra_state.get("patience", {}))
    weights = list(_float32_weights(trainer)) if extra_state else []
    if not weights:
        return extra_state
    saved = read_checkpoint(Path(PathManager.get_local_path(path)))["model"]
    for name, full, rounded in weights:
        value = saved.get(name)
        # They differ if the model has replaced a classification head: then keep its new weights.
        if value is not None and torch.equal(value.to(rounded), rounded):
            full.data.copy_(value)
    return extra_state


def _float32_weights(trainer: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, float32 weight and rounded weight of each parameter that has both."""
    optimizer = trainer.optimizer
    if hasattr(optimizer, "fp32_weights_grads"):  # models/optimizer.py's
        weights, _ = optimizer.fp32_weights_grads
        full = dict(zip(optimizer.fp16_params, weights, strict=True))
        named = trainer.get_model().named_parameters(remove_duplicate=False)
        for name, parameter in named:
            if parameter in full:
                yield name, full[parameter], parameter
