"""``fairseq-mhe to-ctranslate2``: convert a checkpoint to a CTranslate2 model, and compare them."""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import Source, open_source, save_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.compare import random_batches, task_of
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.prepare.data_folder import DataFolder, open_binary

_QUANTIZATIONS = (
    *("float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16"),
    *("int16", "float16", "bfloat16"),
)
#: The largest relative difference of a log probability that rounding may cause in float32.
_ROUNDING = 1e-3
#: Number of random sentences whose log probabilities are compared.
_RANDOM = 8


def convert(
    name: object,
    options: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    data: DataFolder,
    output: Path,
    *,
    quantization: str,
    shared_heads: bool,
) -> None:
    """Run CTranslate2's converter on a model ``transformer``; it writes the new folder ``output``.

    ``options`` and ``parameters`` are what fairseq's checkpoint has; ``data`` has dictionaries.
    Raises UserError if CTranslate2 is not installed or cannot hold the model, called ``name``.
    """
    require("ctranslate2")
    from ctranslate2.converters import FairseqConverter

    from fairseq_mhe.convert.shared_heads import SharedHeadsConverter

    converter = SharedHeadsConverter if shared_heads else FairseqConverter
    pair = dict(zip(("source_lang", "target_lang"), data.languages, strict=True))
    # CTranslate2 reads the options of the model and of the task from one namespace.
    args = argparse.Namespace(**{**options, "task": "translation", **pair})
    try:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Path(folder) / "model.pt"
            save_checkpoint({"args": args, "model": dict(parameters)}, checkpoint)
            converted = converter(str(checkpoint), str(data.binary), **pair)
            converted.convert(str(output), quantization=quantization)
    except OSError:  # for example a full disk, which `new_folder` reports
        raise
    except Exception as error:  # unsupported models make the converter fail in many ways
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problem = f"CTranslate2 cannot hold {name}: {reason}"
        raise UserError(f"{problem}; translate with --engine fairseq") from error


def convert_source(
    source: Source,
    task: TranslationTask,
    data: DataFolder,
    output: Path,
    *,
    quantization: str = "float32",
    shared_heads: bool,
) -> float:
    """Fold and convert a translation model; return the result of `compare_probabilities`.

    Raises UserError if the model has no stock form, or if in float32 more than rounding differs.
    """
    convert(
        source.path,
        source.stock_options,
        folded_parameters(source.model),
        data,
        output,
        quantization=quantization,
        shared_heads=shared_heads,
    )
    error = compare_probabilities(source, task, output)
    if quantization == "float32" and error >= _ROUNDING:
        raise UserError(
            f"CTranslate2's probabilities are not those of {source.path} (logarithms differ by "
            f"{error:.2g} of their size): translate with --engine fairseq, and please report this"
        )
    return error


@torch.inference_mode()
def compare_probabilities(source: Source, task: TranslationTask, folder: Path) -> float:
    """Return the largest relative difference between CTranslate2's log probabilities and fairseq's.

    Both score random translations of random sentences. The difference from NaN is infinite.
    """
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), "cpu", intra_threads=1)
    (batch,) = random_batches(source, _RANDOM)
    log_probs = source.model(**batch["net_input"])[0].log_softmax(-1)  # (B, T, V)
    sources = _words(task.source_dictionary, batch["net_input"]["src_tokens"])
    targets = _words(task.target_dictionary, batch["target"])
    # One at a time: CTranslate2 4.8 cannot score padded targets in its layout ``multi_query``.
    results = translator.score_batch(
        sources, targets, max_input_length=0, max_batch_size=1
    )
    largest = 0.0
    for result, rows, target in zip(results, log_probs, batch["target"], strict=True):
        length = len(result.log_probs)  # the end of the sentence is counted
        expected = rows[range(length), target[:length]]  # (length,)
        difference = (torch.tensor(result.log_probs) - expected).abs()
        relative = difference / expected.abs().clamp(min=1)
        largest = max(largest, float(relative.nan_to_num(torch.inf).max()))
    return largest


def _words(dictionary: Dictionary, tokens: Tensor) -> list[list[str]]:
    """Turn tokens (B, T) into words, without padding and </s>, which CTranslate2 adds itself."""
    lines = dictionary.string(tokens, extra_symbols_to_ignore={dictionary.pad()})
    return [line.split(" ") for line in lines.split("\n")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "run folder, or checkpoint with any kind of attention"
    add("checkpoint", type=Path, metavar="CKPT", help=help_)
    help_ = "data folder that the model was trained on"
    add("--data", type=Path, required=True, metavar="DATA", help=help_)
    help_ = "new folder for CTranslate2's model"
    add("--out", type=Path, required=True, metavar="DIR", help=help_)
    help_ = "number format of the stored weights (default: %(default)s)"
    add("--quantization", choices=_QUANTIZATIONS, default="float32", help=help_)
    help_ = "store equal key and value heads only once (CTranslate2's multi-query layout)"
    add("--shared-heads", action="store_true", help=help_)


def run(args: argparse.Namespace) -> None:
    """Convert, and print how far the log probabilities differ from fairseq's."""
    with quiet_fairseq(), new_folder(args.out) as folder:
        source = open_source(args.checkpoint)
        source.require_translation("CTranslate2's converter")
        data = open_binary(args.data)
        error = convert_source(
            source,
            task_of(data, source),
            data,
            folder,
            quantization=args.quantization,
            shared_heads=args.shared_heads,
        )
    size = f"{(args.out / 'model.bin').stat().st_size / 1e6:.3f} MB"
    kind = source.attention_summary
    print(f"{args.out}: CTranslate2, {args.quantization}, {size}, from {kind}")
    print(f"log probabilities of random words differ by up to {error:.1g} of their size")
