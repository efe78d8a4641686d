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
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fairseq_mhe.common.checkpoint_files import read_checkpoint, why_unreadable
from fairseq_mhe.common.cpu import keep_compiled_products
from fairseq_mhe.common.errors import ErrorExit, UserError
from fairseq_mhe.common.quiet import quieten_start_up


def apply(options_of_ours: Iterable[str]) -> None:
    """Apply the fixes that hold for the whole process; called when our models are registered.

    ``options_of_ours``: what our models have beside fairseq's options, such as ``attention``.
    """
    if "fairseq_cli" in sys.modules:  # else the program is a host's, whose filters are its own
        quieten_start_up()
        keep_compiled_products()
    _load_checkpoints_safely()
    logging.getLogger("fairseq.trainer").addFilter(_is_of_parameters)
    _keep_the_last_batch()
    _number_checkpoints_at_an_epochs_end()
    _mask_whole_words()
    _name_numpys_long()
    _keep_full_precision()
    _keep_layers_of_the_other_side()
    _read_options_without_running_them()
    _name_damaged_data()
    _name_the_architecture({f"--{name.replace('_', '-')}" for name in options_of_ours})


def _is_of_parameters(record: logging.LogRecord) -> bool:
    """Whether a log line is none of those that call biases shared which do not exist.

    fairseq's trainer takes all parameters that are None for one.
    """
    message = record.getMessage()
    return not (message.startswith("detected shared parameter: ") and message.endswith("bias"))


def _load_checkpoints_safely() -> None:
    """Let fairseq read its checkpoints in torch's weights-only mode; refuse others in one line.

    fairseq calls ``torch.load`` without ``weights_only``, which since torch 2.6 refuses the
    ``argparse.Namespace`` that older and stock checkpoints hold. That class holds plain data, so
    allowing it keeps loading free of code execution, which turning ``weights_only`` off would not.
    It can go when fairseq passes ``weights_only`` itself.
    """
    from fairseq import checkpoint_utils

    torch.serialization.add_safe_globals([argparse.Namespace])

    def in_one_line(load: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        file, whole = Path(path), False
        try:
            if file.exists():  # else fairseq may know how to fetch it
                read_checkpoint(file)
                whole = True
            with warnings.catch_warnings(action="ignore"):  # of a foreign pickle
                return load(path, *args, **kwargs)
        except UserError as error:
            raise _refusal(error) from None
        except Exception as error:  # as many kinds as there are foreign files
            if whole and not isinstance(error, (MemoryError, OSError)):
                why = f"{type(error).__name__}: {error}"
                raise _refusal(f"fairseq cannot load {file}, which is whole: {why}") from error
            raise _refusal(why_unreadable(file, error)) from None

    def built_in_one_line(load: Any, filenames: Any, *args: Any, **kwargs: Any) -> Any:
        made_of = f"no model can be made of {', '.join(map(str, filenames))}"
        try:
            return load(filenames, *args, **kwargs)
        except (UserError, ErrorExit) as error:
            why = error.message if isinstance(error, ErrorExit) else str(error)
            named = any(str(name) in why for name in filenames)
            raise _refusal(why if named else f"{made_of}: {why}") from None
        except Exception as error:  # options and weights of every kind
            raise _refusal(f"{made_of}: {type(error).__name__}: {error}") from error

    _wrap(checkpoint_utils, "load_checkpoint_to_cpu", in_one_line)
    _wrap(checkpoint_utils, "load_model_ensemble_and_task", built_in_one_line)


def _refusal(message: object) -> ErrorExit | UserError:
    """The end of a command of fairseq's; in a host program, an error that it can catch."""
    return ErrorExit(message) if "fairseq_cli" in sys.modules else UserError(message)


#: fairseq's modules that give options to Python's eval.
EVALUATING = (
    *("criterions.ctc", "data.audio.raw_audio_dataset", "data.codedataset", "models.fconv"),
    *("models.fconv_lm", "models.fconv_self_att", "models.hubert.hubert", "models.lightconv_lm"),
    *("models.multires_hubert.multires_hubert", "models.speech_to_text.s2t_wav_transformer"),
    *("models.transformer_lm", "models.wav2vec.wav2vec", "models.wav2vec.wav2vec2"),
    *("optim.adafactor", "optim.adam", "optim.adamax", "optim.cpu_adam", "optim.fused_lamb"),
    "utils",
)


def _read_options_without_running_them() -> None:
    """Give those an ``eval`` that reads Python literals and runs no code: options may be a
    checkpoint's. It can go when fairseq calls ``ast.literal_eval``.
    """

    def evaluate(text: str) -> Any:
        try:
            return ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise _refusal(
                f"{text!r:.60} is no number, list or other plain value, and is not run as code"
            ) from None

    for name in EVALUATING:
        module = sys.modules.get(f"fairseq.{name}")
        if module is not None:
            vars(module)["eval"] = evaluate


def _name_damaged_data() -> None:
    """Name the file of binary data, or the dictionary, that cannot be read, in one line."""
    from fairseq.data import Dictionary, data_utils

    advice = "prepare the data again"

    def with_name(load: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            found = load(path, *args, **kwargs)
        except Exception as error:  # as many kinds as there are damages
            raise _refusal(f"cannot read {path}.idx and .bin: {error}; {advice}") from error
        if found is None and Path(f"{path}.idx").exists():
            raise _refusal(f"{path}.idx and .bin are no whole data; {advice}")
        return found

    def add_from_file(dictionary: Dictionary, file: Any) -> None:
        try:
            read(dictionary, file)
        except Exception as error:
            if isinstance(file, str):  # else called for an open file by itself
                raise _refusal(f"cannot read {file}: {error}; {advice}") from error
            raise

    _wrap(data_utils, "load_indexed_dataset", with_name)
    read = Dictionary.add_from_file
    if read.__module__ != __name__:
        Dictionary.add_from_file = add_from_file


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
            raise _refusal(
                f"{ours[0]} needs an architecture of fairseq_mhe, such as --arch "
                f"transformer_mhe_base, not --arch {arch}"
            )
        return parse(parser, input_args, **kwargs)

    _wrap(options, "parse_args_and_arch", checked)


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

    _wrap(data_utils, "batch_by_size", with_last_batch)


def _number_checkpoints_at_an_epochs_end() -> None:
    """Write the checkpoint of --save-interval-updates where it falls on an epoch's end, too.

    There fairseq writes checkpoint_last.pt only (and the epoch's own, unless
    --no-epoch-checkpoints), so that a mean of the last N would take an older one instead. It can go
    when fairseq writes both.
    """
    from fairseq import checkpoint_utils

    def with_number(save: Any, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: Any) -> Any:
        updates, interval = trainer.get_num_updates(), cfg.save_interval_updates
        due = interval > 0 and updates % interval == 0 and epoch_itr.end_of_epoch()
        if due and not cfg.write_checkpoints_asynchronously:
            # As within an epoch, where it is written before all others: a kill cannot part them.
            within = SimpleNamespace(
                epoch=epoch_itr.epoch, state_dict=epoch_itr.state_dict, end_of_epoch=lambda: False
            )
            saved = save(cfg, trainer, within, val_loss)
            if cfg.no_epoch_checkpoints:
                return saved
        return save(cfg, trainer, epoch_itr, val_loss)

    _wrap(checkpoint_utils, "save_checkpoint", with_number)


def _mask_whole_words() -> None:
    """Let ``--mask-whole-words`` work in masked_lm, which reads options that its task has not.

    Where words begin is asked of the dictionary, whose pieces say so if SentencePiece made them,
    instead of a subword model that the task could not name. It can go when MaskedLMTask has
    ``args``.
    """
    from fairseq.tasks import masked_lm

    def of_the_dictionary(original: Any, args: Any, dictionary: Any) -> torch.Tensor:
        begins = [symbol.startswith("\N{LOWER ONE EIGHTH BLOCK}") for symbol in dictionary.symbols]
        if not any(begins):
            raise ErrorExit(
                "--mask-whole-words wants pieces of SentencePiece, which say where words begin, "
                "and the dictionary has none: leave it out"
            )
        begins[: dictionary.nspecial] = [True] * dictionary.nspecial
        return torch.tensor(begins, dtype=torch.uint8)  # (vocabulary,)

    _wrap(masked_lm, "get_whole_word_mask", of_the_dictionary)
    if not hasattr(masked_lm.MaskedLMTask, "args"):
        masked_lm.MaskedLMTask.args = None


def _name_numpys_long() -> None:
    """Give two of fairseq's modules a numpy with ``compat.long``, which numpy 2 has no more.

    Without it --sample-break-mode eos, and buckets of translation, end in an AttributeError. It can
    go when fairseq says ``np.int64``.
    """
    from fairseq.data import language_pair_dataset, token_block_dataset

    if not hasattr(np, "compat"):
        older = SimpleNamespace(**vars(np), compat=SimpleNamespace(long=np.int64))
        for module in (language_pair_dataset, token_block_dataset):
            vars(module)["np"] = older


def _keep_full_precision() -> None:
    """Let checkpoints of ``--bf16`` have the weights that the optimizer works on, in float32.

    fairseq saves the model's, which are rounded to 8 bits, and begins again from them: a training
    that was stopped goes on as another one than it was. (``--fp16`` on GPUs has its float32 weights
    in one flat tensor, and stays as fairseq has it.) It can go when a checkpoint of fairseq's with
    --bf16 has float32 weights.
    """
    from fairseq.trainer import Trainer

    if hasattr(Trainer.state_dict, "__wrapped__"):
        return
    as_state, load = Trainer.state_dict, Trainer.load_checkpoint

    @functools.wraps(as_state)
    def state_dict(trainer: Trainer) -> dict[str, Any]:
        state = as_state(trainer)
        for name, full, _ in _full_precision(trainer):
            state["model"][name] = full.data
        return state

    @functools.wraps(load)
    def load_checkpoint(trainer: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
        found = load(trainer, filename, *args, **kwargs)
        every = list(_full_precision(trainer)) if Path(filename).exists() else []
        if every:
            saved = read_checkpoint(Path(filename))["model"]
            for name, full, rounded in every:
                # Layers may have been pruned and heads replaced on the way.
                value = saved.get(name)
                if value is not None and torch.equal(value.to(rounded), rounded):
                    full.data.copy_(value)
        return found

    Trainer.state_dict, Trainer.load_checkpoint = state_dict, load_checkpoint


def _full_precision(trainer: Any) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """The float32 weights beside those of a model in low precision, by all of their names, and
    those.
    """
    optimizer = trainer.optimizer
    every = getattr(optimizer, "fp32_params", None)
    if not isinstance(every, list):
        return
    full = dict(zip(map(id, optimizer.fp16_params), every, strict=True))
    for name, parameter in trainer.get_model().named_parameters(remove_duplicate=False):
        if id(parameter) in full:
            yield name, full[id(parameter)], parameter


def _keep_layers_of_the_other_side() -> None:
    """Let ``--encoder-layers-to-keep`` or ``--decoder-layers-to-keep`` be given alone.

    fairseq drops all layers of the other side then. It can go when it keeps them.
    """
    from fairseq import checkpoint_utils

    def of_both_sides(prune: Any, state_dict: dict[str, Any], model_cfg: Any) -> dict[str, Any]:
        sides = ("encoder", "decoder")
        whole = tuple(s for s in sides if not getattr(model_cfg, f"{s}_layers_to_keep", None))
        left = {name: state_dict[name] for name in state_dict if name.startswith(whole)}
        return {**left, **prune(state_dict, model_cfg)}

    _wrap(checkpoint_utils, "prune_state_dict", of_both_sides)


def bf16_is_not_tpu(args: argparse.Namespace) -> None:
    """Undo ``--bf16`` turning ``--tpu`` on, which takes the GPU away and asks for torch_xla.

    It can go when fairseq does so only where torch_xla is installed.
    """
    if getattr(args, "bf16", False) and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False


def fp16_without_gpu(args: argparse.Namespace) -> None:
    """Let ``--fp16`` train on a CPU, where fairseq asks CUDA for a device for the gradients.

    It can go when fairseq makes them where the parameters are.
    """
    on_cpu = getattr(args, "cpu", False) or not torch.cuda.is_available()
    if getattr(args, "fp16", False) and on_cpu:
        args.fp16_no_flatten_grads = True


def _wrap(module: Any, name: str, replacement: Any) -> None:
    """Replace a function of fairseq's, once, by one that gets it as its first argument."""
    original = getattr(module, name)
    if not hasattr(original, "__wrapped__"):
        replaced = functools.partial(replacement, original)
        setattr(module, name, functools.update_wrapper(replaced, original))
