"""``fairseq-mhe to-ctranslate2``: a checkpoint as a CTranslate2 model that translates the same."""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.system import require
from fairseq_mhe.convert.compare import BEAM, Material, open_material, random_batches
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.options import add_data, add_subset
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
#: Longest translation that is compared.
_LONGEST = 200


def convert(
    source: Source,
    dictionaries: Path,
    languages: tuple[str, str],
    output: Path,
    quantization: str,
    shared_heads: bool,
) -> None:
    """Fold ``source`` and let CTranslate2's converter write it to the new folder ``output``.

    ``dictionaries``: the folder with dict.LANG.txt of both ``languages``.

    Raises:
        UserError: CTranslate2 is not installed or cannot hold the model.
    """
    require("ctranslate2")
    parameters, how = folded_parameters(source.model), (quantization, shared_heads)
    try:
        convert_stock(
            source.stock_options, parameters, dictionaries, languages, output, *how
        )
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror or error}") from error
    except Exception as error:  # its converter does not check what a model has
        reason = " ".join(str(error).split())
        raise UserError(
            f"CTranslate2 cannot hold {source.path}: {type(error).__name__}: {reason}; translate "
            "with --engine fairseq"
        ) from error


def convert_stock(
    options: Mapping[str, Any],
    parameters: Mapping[str, Tensor],
    dictionaries: Path,
    languages: tuple[str, str],
    output: Path,
    quantization: str,
    shared_heads: bool = False,
) -> None:
    """Let CTranslate2's converter read a model ``transformer`` from a checkpoint as fairseq's."""
    from ctranslate2.converters import FairseqConverter

    from fairseq_mhe.convert.shared_heads import SharedHeadsConverter

    converter = SharedHeadsConverter if shared_heads else FairseqConverter
    pair = dict(zip(("source_lang", "target_lang"), languages, strict=True))
    # CTranslate2 wants fairseq's options in a namespace, the task's among them.
    args = argparse.Namespace(**{**options, "task": "translation", **pair})
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "model.pt"
        torch.save({"args": args, "model": dict(parameters)}, checkpoint)
        converted = converter(str(checkpoint), str(dictionaries), **pair)
        converted.convert(str(output), quantization=quantization)


def open_translator(folder: Path, device: str, precision: str, threads: int) -> Any:
    """CTranslate2 with a converted model, for one batch after another with all threads."""
    import ctranslate2

    return ctranslate2.Translator(
        str(folder),
        device=device,
        compute_type=precision,
        inter_threads=1,
        intra_threads=threads,
    )


@torch.inference_mode()
def agreement(material: Material, translator: Any) -> tuple[int, int, int]:
    """How many sentences are compared, and of these have fairseq's translation: greedy, by beam."""
    ours: Any = material.source.model
    task = material.task
    limit = min(_LONGEST, ours.max_positions()[1] - 1)
    sentences = [
        _words(task.source_dictionary, tokens)
        for batch in material.compared
        for tokens in batch["net_input"]["src_tokens"].tolist()
    ]
    same = []
    for beam in (1, BEAM):
        results = translator.translate_batch(
            sentences, beam_size=beam, max_input_length=0, max_decoding_length=limit
        )
        expected = material.search(ours, beam, limit)
        pairs = zip(results, expected, strict=True)
        words = task.target_dictionary
        same.append(sum(each.hypotheses[0] == _words(words, best) for each, best in pairs))
    return len(sentences), same[0], same[1]


@torch.inference_mode()
def check_exact(
    source: Source, dictionaries: tuple[Dictionary, Dictionary], translator: Any
) -> None:
    """See that CTranslate2 gives each word the probability that fairseq gives it.

    That needs no data: sentences and translations are of random words of the ``dictionaries``.

    Raises:
        UserError: the converted float32 model is another one.
    """
    (batch,) = random_batches(source, _RANDOM)
    logs = source.model(**batch["net_input"])[0].log_softmax(-1)  # (B, T, V)
    sides = batch["net_input"]["src_tokens"].tolist(), batch["target"].tolist()
    sentences, targets = (
        [_words(dictionary, tokens) for tokens in side]
        for dictionary, side in zip(dictionaries, sides, strict=True)
    )
    # One at a time: 4.8 cannot score padded targets with its layout ``multi_query``.
    results = translator.score_batch(
        sentences, targets, max_input_length=0, max_batch_size=1
    )
    off = 0.0
    for result, own, target in zip(results, logs, batch["target"], strict=True):
        length = len(result.log_probs)  # of the words and the end
        expected = own[range(length), target[:length]]  # (length,)
        difference = torch.tensor(result.log_probs) - expected
        share = difference.abs() / expected.abs().clamp(min=1)
        off = max(off, float(share.nan_to_num(torch.inf).max()))
    if not off < _ROUNDING:
        raise UserError(
            f"CTranslate2's probabilities are not those of {source.path} (logarithms are off by "
            f"{off:.2g} of their size): translate with --engine fairseq, and please report this"
        )


def _words(dictionary: Dictionary, tokens: Sequence[int]) -> list[str]:
    """The words of a sentence without its end, which CTranslate2 adds itself, and padding."""
    return [dictionary[x] for x in tokens if x not in (dictionary.eos(), dictionary.pad())]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "checkpoint of any kind of attention, or a run folder"
    add("checkpoint", type=Path, metavar="CKPT", help=help_)
    add_data(parser, "its data folder", sentences=100, required=True)
    add_subset(parser)
    add("--out", type=Path, required=True, metavar="DIR", help="new folder")
    help_ = "number format of the stored weights (default: %(default)s)"
    add("--quantization", choices=_QUANTIZATIONS, default="float32", help=help_)
    help_ = (
        "store keys and values that heads share once (CTranslate2's multi-query layout): a "
        "smaller model"
    )
    add("--shared-heads", action="store_true", help=help_)


def run(args: argparse.Namespace) -> None:
    """Convert, compare, and say how many translations are the same."""
    with quiet_fairseq():
        source = open_source(args.checkpoint)
        source.only_translation("CTranslate2's converter")
        data = open_binary(args.data)
        material = open_material(
            source, args.data, args.sentences, args.subset, measured=False
        )
        with new_folder(args.out) as folder:
            how = (args.quantization, args.shared_heads)
            convert(source, data.binary, data.languages, folder, *how)
            translator = open_translator(folder, "cpu", "default", threads=1)
            if args.quantization == "float32":
                task = material.task
                check_exact(
                    source, (task.source_dictionary, task.target_dictionary), translator
                )
            count, greedy, beam = agreement(material, translator)
    size = f"{args.quantization}, {(args.out / 'model.bin').stat().st_size / 1e6:.3f} MB"
    print(f"{args.out}: CTranslate2, {size}, from {source.attention_words}")
    print(
        f"the same translation as fairseq's for {greedy} of {count} sentences of "
        f"{args.subset} (greedy), {beam} with beam {BEAM}"
    )
