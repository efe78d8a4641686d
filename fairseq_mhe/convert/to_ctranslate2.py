"""``fairseq-mhe to-ctranslate2``: a checkpoint and its data folder as a CTranslate2 model that translates the same."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.convert.compare import quiet_fairseq, search
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.convert.sentences import batches, sentence_pairs, task_of
from fairseq_mhe.prepare.data_folder import DataFolder, open_data

#: What CTranslate2 can store weights as.
QUANTIZATIONS = (
    "float32",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
)
BEAM = 5
#: Longest translation that is compared.
LONGEST = 200
#: In float32 at least this share of greedy translations must be the same: two near-equal words may
#: swap by rounding.
SAME_GREEDY = 0.98


@dataclass(frozen=True)
class Agreement:
    """Of how many sentences the translations are the same as fairseq's, and the size of the model's file."""

    sentences: int
    greedy: int
    beam: int
    megabytes: float


def convert(
    source: Source, data: DataFolder, output: Path, quantization: str, shared_heads: bool
) -> None:
    """Fold ``source`` and let CTranslate2's converter write it to the new folder ``output``.

    Raises:
        UserError: CTranslate2 is not installed or cannot hold the model, or the folder cannot be
        written.
    """
    check_installed()
    if source.options["no_cross_attention"]:
        raise UserError(
            f"{source.path} has no cross-attention, which CTranslate2's encoder-decoder models need"
        )
    parameters = folded_parameters(source.model)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "folded.pt"
        _write_legacy(source, parameters, data, checkpoint)
        try:
            _converter(shared_heads)(
                str(checkpoint),
                str(data.binary),
                source_lang=data.languages[0],
                target_lang=data.languages[1],
            ).convert(str(output), quantization=quantization)
        except (ValueError, NotImplementedError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"CTranslate2 cannot hold {source.path}: {reason}") from None
        except OSError as error:
            raise UserError(f"cannot write {output}: {error.strerror or error}") from error


def agreement(
    source: Source, task: TranslationTask, model: Path, subset: str, sentences: int, threads: int
) -> Agreement:
    """Translate the first ``sentences`` of a split with fairseq and the original model, and with CTranslate2."""
    import ctranslate2

    translator = ctranslate2.Translator(
        str(model), device="cpu", inter_threads=1, intra_threads=threads
    )
    pairs = sentence_pairs(task, subset, sentences)
    found = batches(task, subset, pairs)
    words = [
        [task.source_dictionary[token] for token in pair["source"][:-1].tolist()] for pair in pairs
    ]
    same = []
    for beam in (1, BEAM):
        ours = search(source.model, task, found, beam, limit=LONGEST)
        theirs = translator.translate_batch(words, beam_size=beam, max_decoding_length=LONGEST)
        expected = [
            [task.target_dictionary[token] for token in ours[int(pair["id"])][:-1]]
            for pair in pairs
        ]  # without </s>
        same.append(sum(e == t.hypotheses[0] for e, t in zip(expected, theirs, strict=True)))
    return Agreement(
        len(pairs), same[0], same[1], round((model / "model.bin").stat().st_size / 1e6, 3)
    )


def check_installed() -> None:
    """See that CTranslate2 is there.

    Raises:
        UserError: it is not.
    """
    if importlib.util.find_spec("ctranslate2") is None:
        raise UserError("ctranslate2 is not installed: pip install 'fairseq-mhe[convert]'")


def _converter(shared_heads: bool) -> Any:
    if shared_heads:
        from fairseq_mhe.convert.shared_heads import SharedHeadsConverter

        return SharedHeadsConverter
    from ctranslate2.converters import FairseqConverter

    return FairseqConverter


def _write_legacy(
    source: Source, parameters: dict[str, Tensor], data: DataFolder, path: Path
) -> None:
    """The folded model as CTranslate2's converter wants it: fairseq's options in a namespace, the task's among them."""
    languages = {"source_lang": data.languages[0], "target_lang": data.languages[1]}
    task = {"task": "translation", **languages}
    args = argparse.Namespace(**{**source.stock_options, **task})
    torch.save({"args": args, "model": parameters}, path)


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """A folder beside ``output`` that becomes ``output`` when the block ends well, and is removed otherwise.

    Raises:
        UserError: ``output`` is there already.
    """
    if output.exists():
        raise UserError(f"{output} exists: remove it, or name another folder")
    temporary = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, output)
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe to-ctranslate2``."""
    parser.add_argument(
        "checkpoint", type=Path, metavar="CKPT", help="checkpoint of any kind of attention"
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DATA", help="its data folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default="float32",
        help="how weights are stored (default: %(default)s)",
    )
    parser.add_argument(
        "--shared-heads",
        action="store_true",
        help="store keys and values that heads share once (CTranslate2's multi-query layout): a smaller model",
    )
    parser.add_argument(
        "--subset", default="test", help="split of DATA to compare on (default: %(default)s)"
    )
    parser.add_argument(
        "--sentences",
        type=positive,
        default=100,
        metavar="N",
        help="of it, the first N (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="CPU threads of CTranslate2"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON, for programs"
    )


def run(args: argparse.Namespace) -> None:
    """Convert, compare, and say how many translations are the same."""
    with quiet_fairseq():
        source = open_source(args.checkpoint)
        data = open_data(args.data)
        task = task_of(data, source)
        with new_folder(args.out) as folder:
            convert(source, data, folder, args.quantization, args.shared_heads)
            found = agreement(source, task, folder, args.subset, args.sentences, args.threads)
            if args.quantization == "float32" and found.greedy < SAME_GREEDY * found.sentences:
                raise UserError(
                    f"CTranslate2 translates only {found.greedy} of {found.sentences} sentences as fairseq does "
                    "(greedy, float32), so that the model is not kept; please report this"
                )
    if args.json:
        print(
            json.dumps(
                {
                    **asdict(found),
                    "quantization": args.quantization,
                    "shared_heads": args.shared_heads,
                }
            )
        )
        return
    made_of = source.attention_words
    print(f"{args.out}: CTranslate2, {args.quantization}, {found.megabytes} MB, from {made_of}")
    print(
        f"the same translation as fairseq's for {found.greedy} of {found.sentences} sentences of {args.subset} "
        f"(greedy), {found.beam} with beam {BEAM}"
    )
