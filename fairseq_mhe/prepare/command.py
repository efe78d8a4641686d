"""``fairseq-mhe prepare``: parallel text of one's own to a data folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypedDict

from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.pipeline import prepare
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.subword import MODEL_TYPES, SUBWORDS
from fairseq_mhe.prepare.tokenise import TOKENIZERS

MERGES = 32000


class SubwordOptions(TypedDict, total=False):
    """The options that every corpus has, as `PrepareConfig` takes them; tokenizer None: `default_tokenizer`'s."""

    subword: str
    vocab_size: int
    model_type: str
    tokenizer: str | None
    workers: int | None


def add_subword_arguments(parser: argparse.ArgumentParser, subword: str, vocab_size: int) -> None:
    """`SubwordOptions` as a command's, with the defaults that suit a corpus."""
    parser.add_argument(
        "--subword",
        choices=SUBWORDS,
        default=subword,
        help="kind of subwords (default: %(default)s)",
    )
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=vocab_size,
        metavar="N",
        help="merges (bpe) or pieces (sentencepiece), of both languages together (default: %(default)s)",
    )
    parser.add_argument(
        "--model-type",
        choices=MODEL_TYPES,
        default="unigram",
        help="SentencePiece's model (default: %(default)s)",
    )
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="word tokeniser before the subwords (default: moses for bpe, none for sentencepiece)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes (default: all cores); the result is the same",
    )


def default_tokenizer(subword: str) -> str:
    """What usually goes before a kind of subwords: SentencePiece takes plain text, BPE words."""
    return "none" if subword == "sentencepiece" else "moses"


def subword_options(args: argparse.Namespace) -> SubwordOptions:
    """What `add_subword_arguments` has asked for."""
    return SubwordOptions(
        subword=args.subword,
        vocab_size=args.vocab_size,
        model_type=args.model_type,
        tokenizer=args.tokenizer,
        workers=args.workers,
    )


def settled(options: SubwordOptions, vocab_size: int) -> dict[str, Any]:
    """Fields of `PrepareConfig`; ``vocab_size``: the corpus' own, where the options name none."""
    tokenizer = options.get("tokenizer") or default_tokenizer(options.get("subword", "bpe"))
    return {"vocab_size": vocab_size, **options, "tokenizer": tokenizer}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    text = "PREFIX.LANG for each language, or NAME.tsv (source TAB target), plain, .gz or .xz"
    parser.add_argument(
        "--train",
        type=Path,
        required=True,
        nargs="+",
        metavar="PREFIX",
        help=f"training text: {text}; several are joined",
    )
    for split in ("valid", "test"):
        parser.add_argument(
            f"--{split}", type=Path, metavar="PREFIX", help=f"{split} text, in the same forms"
        )
    parser.add_argument(
        "--hold-out",
        type=int,
        metavar="N",
        help="without --valid: every Nth clean training pair is valid; without --test: the pair after it is test",
    )
    parser.add_argument(
        "--source-lang", required=True, metavar="LANG", help="language translated from, as en"
    )
    parser.add_argument(
        "--target-lang", required=True, metavar="LANG", help="language translated into, as de"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DATA", help="folder to make")
    add_subword_arguments(parser, "bpe", MERGES)
    parser.add_argument(
        "--max-tokens",
        type=int,
        default=250,
        metavar="N",
        help="drop pairs with a longer side (default: %(default)s)",
    )
    parser.add_argument(
        "--max-ratio",
        type=float,
        default=1.5,
        metavar="X",
        help="drop train pairs with over X times as many tokens on one side as on the other (default: %(default)s)",
    )
    parser.add_argument(
        "--punctuation",
        action="store_true",
        help="write quotes, dashes and spaces around punctuation in one way, in what the model sees",
    )
    parser.add_argument("--lowercase", action="store_true", help="everything in small letters")


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    config = PrepareConfig(
        train=tuple(args.train),
        valid=args.valid,
        test=args.test,
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        out=args.out,
        max_tokens=args.max_tokens,
        max_ratio=args.max_ratio,
        punctuation=args.punctuation,
        lowercase=args.lowercase,
        hold_out=args.hold_out,
        **settled(subword_options(args), MERGES),
    )
    with shown_progress() as report:
        print(prepare(config, report))
