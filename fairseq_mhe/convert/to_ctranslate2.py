"""``fairseq-mhe to-ctranslate2``: a checkpoint as a CTranslate2 model that translates the same."""

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.compare import random_batches, task_of
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.prepare.data_folder import open_binary

#: What CTranslate2 can store weights as.
_QUANTIZATIONS = (
    *("float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16"),
    *("int16", "float16", "bfloat16"),
)
#: In float32 the logarithm of a word's probability is off by rounding only, relative to its size.
_ROUNDING = 1e-3
#: Random sentences that have their probabilities compared.
_RANDOM = 8


def convert(
    name: object,
    options: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    dictionaries: Path,
    languages: tuple[str, str],
    output: Path,
    quantization: str,
    shared_heads: bool,
) -> None:
    """Let CTranslate2's converter write a model ``transformer`` to the new folder ``output``.

    ``options``, ``parameters``: as of fairseq's checkpoints; ``dictionaries``: the folder with
    dict.LANG.txt of both ``languages``. UserError, which has the ``name``, where CTranslate2 is not
    installed or cannot hold the model.
    """
    require("ctranslate2")
    from ctranslate2.converters import FairseqConverter

    from fairseq_mhe.convert.shared_heads import SharedHeadsConverter

    converter = SharedHeadsConverter if shared_heads else FairseqConverter
    pair = dict(zip(("source_lang", "target_lang"), languages, strict=True))
    # CTranslate2 wants fairseq's options in a namespace, the task's among them.
    args = argparse.Namespace(**{**options, "task": "translation", **pair})
    try:
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Path(folder) / "model.pt"
            torch.save({"args": args, "model": dict(parameters)}, checkpoint)
            converted = converter(str(checkpoint), str(dictionaries), **pair)
            converted.convert(str(output), quantization=quantization)
    except OSError:  # as of a full disk, which `new_folder` explains
        raise
    except Exception as error:  # its converter does not check what a model has
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        what = f"CTranslate2 cannot hold {name}: {reason}"
        raise UserError(f"{what}; translate with --engine fairseq") from error


def open_translator(folder: Path, device: str, precision: str, threads: int) -> Any:
    """CTranslate2 with a converted model, for one batch after another with all threads."""
    import ctranslate2

    how = {"device": device, "compute_type": precision, "intra_threads": threads}
    return ctranslate2.Translator(str(folder), inter_threads=1, **how)


@torch.inference_mode()
def check_exact(
    source: Source, task: TranslationTask, translator: Any, tolerance: float = _ROUNDING
) -> float:
    """How far logarithms of words' probabilities are from fairseq's at most, by their size.

    That needs no data: sentences and translations are of random words. UserError where it is more
    than ``tolerance``.
    """
    (batch,) = random_batches(source, _RANDOM)
    logs = source.model(**batch["net_input"])[0].log_softmax(-1)  # (B, T, V)
    sources = _words(task.source_dictionary, batch["net_input"]["src_tokens"])
    targets = _words(task.target_dictionary, batch["target"])
    # One at a time: 4.8 cannot score padded targets with its layout ``multi_query``.
    how = {"max_input_length": 0, "max_batch_size": 1}
    results = translator.score_batch(sources, targets, **how)
    off = 0.0
    for result, own, target in zip(results, logs, batch["target"], strict=True):
        length = len(result.log_probs)  # of the words and the end
        expected = own[range(length), target[:length]]  # (length,)
        difference = (torch.tensor(result.log_probs) - expected).abs()
        share = difference / expected.abs().clamp(min=1)
        off = max(off, float(share.nan_to_num(torch.inf).max()))
    if not off < tolerance:
        raise UserError(
            f"CTranslate2's probabilities are not those of {source.path} (logarithms are off by "
            f"{off:.2g} of their size): translate with --engine fairseq, and please report this"
        )
    return off


def _words(dictionary: Dictionary, tokens: Tensor) -> list[list[str]]:
    """Sentences (B, T) in words, without padding and ends, which CTranslate2 adds itself."""
    without = dictionary.eos(), dictionary.pad()
    sentences = []
    for line in tokens.tolist():
        sentences.append([dictionary[x] for x in line if x not in without])
    return sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "checkpoint of any kind of attention, or a run folder"
    add("checkpoint", type=Path, metavar="CKPT", help=help_)
    add("--data", type=Path, required=True, metavar="DATA", help="its data folder")
    add("--out", type=Path, required=True, metavar="DIR", help="new folder")
    help_ = "number format of the stored weights (default: %(default)s)"
    add("--quantization", choices=_QUANTIZATIONS, default="float32", help=help_)
    help_ = (
        "store keys and values that heads share once (CTranslate2's multi-query layout)"
    )
    add("--shared-heads", action="store_true", help=help_)


def run(args: argparse.Namespace) -> None:
    """Convert, and say how near words' probabilities come to fairseq's."""
    how = args.quantization
    with quiet_fairseq(), new_folder(args.out) as folder:
        source = open_source(args.checkpoint)
        source.require_translation("CTranslate2's converter")
        data = open_binary(args.data)
        task = task_of(data, source)
        weights = folded_parameters(source.model)
        to = data.binary, data.languages, folder, how, args.shared_heads
        convert(source.path, source.stock_options, weights, *to)
        translator = open_translator(folder, "cpu", "default", threads=1)
        tolerance = _ROUNDING if how == "float32" else float("inf")
        off = check_exact(source, task, translator, tolerance)
    size = f"{(args.out / 'model.bin').stat().st_size / 1e6:.3f} MB"
    print(f"{args.out}: CTranslate2, {how}, {size}, from {source.attention_summary}")
    print(
        f"logarithms of random words' probabilities differ by up to {off:.1g} of their size"
    )
