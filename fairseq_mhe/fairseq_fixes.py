"""Work-arounds for fairseq's bugs that users of the user-dir would meet, each named and tested.

fairseq itself is never edited: each fix replaces one function, or calls fairseq so that the bug
does not show. tests/test_fairseq_fixes.py fails for a fix that is no longer needed.
"""

import argparse
import ast
import functools
import importlib.util
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.cpu import keep_compiled_products
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.quiet import quieten_start_up


def apply(options_of_ours: Iterable[str]) -> None:
    """Apply the fixes that hold for the whole process; called when our models are registered.

    ``options_of_ours``: what our models have beside fairseq's options, such as ``attention``.
    """
    if "fairseq_cli" in sys.modules:  # else a host program, which has its own filters
        quieten_start_up()
        keep_compiled_products()
    _load_checkpoints_safely()
    logging.getLogger("fairseq.trainer").addFilter(_is_of_parameters)
    _name_damaged_data()
    _name_the_architecture({f"--{name.replace('_', '-')}" for name in options_of_ours})
    _read_options_without_running_them()
    _keep_the_last_batch()
    _number_checkpoints_at_an_epochs_end()
    _keep_full_precision()


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Replace a function of fairseq, once, by one that gets it as its first argument."""
    original = getattr(owner, name)
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, replaced)


def _load_checkpoints_safely() -> None:
    """Let fairseq read its checkpoints in torch's weights-only mode; refuse others in one line.

    fairseq calls ``torch.load`` without ``weights_only``, which since torch 2.6 refuses the
    ``argparse.Namespace`` that older and stock checkpoints hold. That class holds plain data, so
    allowing it keeps loading free of code execution, which turning ``weights_only`` off would not.
    It can go when fairseq passes ``weights_only`` itself.
    """
    from fairseq import checkpoint_utils

    def in_one_line(load: Any, files: Any, *args: Any, **kwargs: Any) -> Any:
        paths = [files] if isinstance(files, (str, Path)) else files
        try:
            for path in paths:
                read_checkpoint(Path(path))
            with warnings.catch_warnings(action="ignore"):
                return load(files, *args, **kwargs)
        except UserError as error:
            raise ErrorExit(error) from None
        except (Exception, ErrorExit) as error:  # options and weights of every kind
            why = error.message if isinstance(error, ErrorExit) else repr(error)
            raise ErrorExit(f"cannot load {', '.join(map(str, paths))}: {why}") from error

    torch.serialization.add_safe_globals([argparse.Namespace])
    _replace(checkpoint_utils, "load_checkpoint_to_cpu", in_one_line)
    _replace(checkpoint_utils, "load_model_ensemble_and_task", in_one_line)


def _is_of_parameters(record: logging.LogRecord) -> bool:
    """False for lines that call biases shared which do not exist.

    fairseq's trainer takes all parameters that are None for one.
    """
    message = record.getMessage()
    return not (message.startswith("detected shared parameter: ") and message.endswith("bias"))


def _name_the_architecture(flags: set[str]) -> None:
    """Say in one line that an option of ours needs an architecture of ours.

    fairseq prints some pages on the usage of its command. ``flags``: such as ``--attention``.
    """
    from fairseq import options

    def checked(parse: Any, parser: Any, input_args: Any = None, **kwargs: Any) -> Any:
        words = [*(sys.argv[1:] if input_args is None else input_args), ""]
        arch = next((after for word, after in pairwise(words) if word in ("--arch", "-a")), "")
        ours = sorted(flags.intersection(word.split("=")[0] for word in words))
        if ours and arch and "_mhe" not in arch:
            raise ErrorExit(
                f"{ours[0]} needs an architecture of fairseq_mhe, such as --arch "
                f"transformer_mhe_base, not --arch {arch}"
            )
        return parse(parser, input_args, **kwargs)

    _replace(options, "parse_args_and_arch", checked)


def _name_damaged_data() -> None:
    """Name the binary data or the dictionary that cannot be read, in one line."""
    from fairseq.data import Dictionary, data_utils

    def load(original: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            data = original(path, *args, **kwargs)
        except Exception as error:  # as many kinds as there are damages
            raise ErrorExit(f"cannot read {path}.idx and .bin: {error}; {advice}") from error
        if data is None and Path(f"{path}.idx").exists():
            raise ErrorExit(f"{path}.idx and .bin are no whole data; {advice}")
        return data

    def add_from_file(original: Any, dictionary: Dictionary, file: Any) -> None:
        try:
            original(dictionary, file)
        except Exception as error:
            if isinstance(file, str):  # fairseq calls it again with the open file
                raise ErrorExit(f"cannot read {file}: {error}; {advice}") from error
            raise

    advice = "prepare the data again"
    _replace(data_utils, "load_indexed_dataset", load)
    _replace(Dictionary, "add_from_file", add_from_file)


#: The modules of fairseq that evaluate options, which may come from a checkpoint.
EVALUATING = (
    *("criterions.ctc", "data.audio.raw_audio_dataset", "data.codedataset", "models.fconv"),
    *("models.fconv_lm", "models.fconv_self_att", "models.hubert.hubert"),
    *("models.lightconv_lm", "models.multires_hubert.multires_hubert"),
    *("models.speech_to_text.s2t_wav_transformer", "models.transformer_lm"),
    *("models.wav2vec.wav2vec", "models.wav2vec.wav2vec2", "optim.adafactor", "optim.adam"),
    *("optim.adamax", "optim.cpu_adam", "optim.fused_lamb", "utils"),
)


def _read_options_without_running_them() -> None:
    """Give them an ``eval`` that reads Python literals and runs no code.

    It can go when fairseq calls ``ast.literal_eval``.
    """

    def evaluate(text: str) -> Any:
        try:
            return ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise ErrorExit(f"{text!r:.60} is no number, list or other plain value") from None

    for name in EVALUATING:
        module = sys.modules.get(f"fairseq.{name}")
        if module is not None:
            vars(module)["eval"] = evaluate


def _keep_the_last_batch() -> None:
    """Give back the last batch, which fairseq drops where its size does not suit it.

    By default (``--required-batch-size-multiple 8``) it silently loses the last ``len % 8``
    sentences in generation, validation and training (fairseq issues 5036, 5094, 5351). It can go
    when those are closed.
    """
    from fairseq.data import data_utils

    def with_last_batch(batch_by_size: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        batches = batch_by_size(indices, *args, **kwargs)
        # Batches are consecutive slices of indices; those of fixed shapes lose nothing.
        kept = sum(len(batch) for batch in batches)
        return [*batches, indices[kept:]] if kept < len(indices) else batches

    _replace(data_utils, "batch_by_size", with_last_batch)


def _number_checkpoints_at_an_epochs_end() -> None:
    """Write the checkpoint of --save-interval-updates where it falls on an epoch's end, too.

    There fairseq writes checkpoint_last.pt only (and the epoch's own, unless
    --no-epoch-checkpoints), so that a mean of the last N would take an older one instead. It can go
    when fairseq writes both.
    """
    from fairseq import checkpoint_utils

    def with_number(save: Any, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
        updates, interval = trainer.get_num_updates(), cfg.save_interval_updates
        if interval > 0 and updates % interval == 0 and epoch_itr.end_of_epoch():
            # As within an epoch, where it is written before all others: a kill cannot part them.
            within = SimpleNamespace(
                epoch=epoch_itr.epoch,
                state_dict=epoch_itr.state_dict,
                end_of_epoch=lambda: False,
            )
            saved = save(cfg, trainer, within, val_loss)
            if cfg.no_epoch_checkpoints:
                return saved
        return save(cfg, trainer, epoch_itr, val_loss)

    _replace(checkpoint_utils, "save_checkpoint", with_number)


def _keep_full_precision() -> None:
    """Let checkpoints of ``--bf16`` have the weights that the optimizer works on, in float32.

    fairseq saves the model's, which are rounded to 8 bits, and resumes from them: a resumed
    training differs from one that was never stopped. (``--fp16`` on GPUs has its float32 weights
    in one flat tensor, and stays as in fairseq.) It can go when a checkpoint of fairseq with --bf16
    has float32 weights.
    """
    from fairseq.trainer import Trainer

    def state_dict(as_state: Any, trainer: Trainer) -> dict[str, Any]:
        state: dict[str, Any] = as_state(trainer)
        for name, full, _ in _full_precision(trainer):
            state["model"][name] = full.data
        return state

    def load_checkpoint(
        load: Any, trainer: Trainer, filename: str, *args: Any, **kw: Any
    ) -> Any:
        extra_state = load(trainer, filename, *args, **kw)
        weights = list(_full_precision(trainer)) if Path(filename).exists() else []
        saved = read_checkpoint(Path(filename))["model"] if weights else {}
        for name, full, rounded in weights:
            # A head may have been replaced when it was loaded.
            value = saved.get(name)
            if value is not None and torch.equal(value.to(rounded), rounded):
                full.data.copy_(value)
        return extra_state

    _replace(Trainer, "state_dict", state_dict)
    _replace(Trainer, "load_checkpoint", load_checkpoint)


def _full_precision(trainer: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Name, float32 weight and low-precision weight of each parameter; nothing in float32."""
    optimizer = trainer.optimizer
    weights = getattr(optimizer, "fp32_params", None)
    if not isinstance(weights, list):
        return
    full = dict(zip(map(id, optimizer.fp16_params), weights, strict=True))
    for name, parameter in trainer.get_model().named_parameters(remove_duplicate=False):
        if id(parameter) in full:
            yield name, full[id(parameter)], parameter


def bf16_is_not_tpu(args: argparse.Namespace) -> None:
    """Undo ``--bf16`` turning ``--tpu`` on, which takes the GPU away and asks for torch_xla.

    It can go when fairseq does so only where torch_xla is installed.
    """
    if getattr(args, "bf16", False) and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False


def fp16_without_gpu(args: argparse.Namespace) -> None:
    """Let ``--fp16`` train on a CPU, where fairseq asks CUDA for a device for the gradients.

    It can go when fairseq allocates them where the parameters are.
    """
    on_cpu = getattr(args, "cpu", False) or not torch.cuda.is_available()
    if getattr(args, "fp16", False) and on_cpu:
        args.fp16_no_flatten_grads = True
