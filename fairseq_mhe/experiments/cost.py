"""``fairseq-mhe cost``: parameters, multiply-adds and cache of a row with a kind of attention."""

import argparse
import json
from dataclasses import astuple
from typing import Any

from rich.console import Console
from rich.table import Table

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.build import VOCABULARY, build_on_meta
from fairseq_mhe.models.counting import CacheBytes, Cost, cache_bytes, costs, embedding_parameters
from fairseq_mhe.models.families import TRANSLATION, build_language_on_meta, language_archs
from fairseq_mhe.models.options import PLACES, kinds, size_options

#: Bytes of a number.
BYTES = {"float32": 4, "float16": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe cost``."""
    parser.add_argument(
        "row",
        metavar="ROW",
        help=f"size of the model: {', '.join([*ROWS, *SMALL_ROWS])}; or an architecture of a "
        f"language model: {', '.join(language_archs())}",
    )
    parser.add_argument(
        "attention", metavar="ATTENTION", help=f"kind of attention: {', '.join(KINDS)}"
    )
    for place in PLACES:
        parser.add_argument(
            f"--{place}-attention", metavar="KIND", help=f"another kind of {place} attention"
        )
    for name, (option, users) in size_options().items():
        flags = dict.fromkeys(f"--{flag.replace('_', '-')}" for flag in (option.name, name))
        parser.add_argument(
            *flags, dest=name, type=int, metavar="N", help=f"{', '.join(users)}: {option.help}"
        )
    for name, default, what in (
        ("source", 25, "source tokens of a sentence"),
        ("target", 25, "target tokens of its translation"),
        ("beam", 5, "hypotheses of a beam search"),
        ("vocab-size", VOCABULARY, "joined vocabulary"),
    ):
        words = f"{what} (default: %(default)s)"
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=words)
    parser.add_argument(
        "--dtype", choices=BYTES, default="float32", help="of the cache (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print what a model costs, as a table or as JSON."""
    for name in ("source", "target", "beam"):
        if getattr(args, name) < 1:
            raise UserError(f"--{name} must be 1 or more, not {getattr(args, name)}")
    names = (*PLACES.values(), *size_options())
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    build = build_language_on_meta if args.row in language_archs() else build_on_meta
    model = build(args.row, args.attention, args.vocab_size, **given)
    parts = costs(model, args.source, (args.target + 1) / 2)
    cache = cache_bytes(model, BYTES[args.dtype])
    embedding = embedding_parameters(model)
    if args.json:
        print(json.dumps(_report(args, parts, cache, embedding), indent=2))
    else:
        _show(args, parts, cache, embedding)


def _kinds(args: argparse.Namespace) -> dict[str, str]:
    """The kind at each place that the model has."""
    family = language_archs().get(args.row, TRANSLATION)
    return {place: kind for place, kind in kinds(args).items() if place in family.places}


def _totals(parts: dict[str, Cost]) -> tuple[Cost, Cost]:
    """Of all attention, and of the whole model."""
    attention = sum((parts[place] for place in PLACES), Cost())
    return attention, attention + parts["rest"]


def _report(
    args: argparse.Namespace, parts: dict[str, Cost], cache: CacheBytes, embedding: int
) -> dict[str, Any]:
    """All numbers, as JSON has them."""
    attention, model = _totals(parts)
    return {
        "row": args.row,
        "attention": _kinds(args),
        "source_tokens": args.source,
        "target_tokens": args.target,
        "beam": args.beam,
        "dtype": args.dtype,
        "vocabulary": args.vocab_size,
        "attention_parameters": attention.parameters,
        "embedding_parameters": embedding,
        "total_parameters": model.parameters,
        "multiply_adds": {
            name: {"per_source_token": _plain(part.source), "per_target_token": _plain(part.target)}
            for name, part in (("attention", attention), ("model", model))
        },
        "cache_bytes": {
            "per_source_token": cache.per_source_token,
            "per_target_token": cache.per_target_token,
            "per_sentence": cache.per_sentence(args.source, args.target),
            "per_sentence_with_beam": cache.per_sentence(args.source, args.target, args.beam),
        },
    }


def _plain(number: float) -> float:
    """A whole number without a decimal point."""
    return int(number) if number == int(number) else number


def _show(
    args: argparse.Namespace, parts: dict[str, Cost], cache: CacheBytes, embedding: int
) -> None:
    table = Table(title=f"{args.row} with a vocabulary of {args.vocab_size:,}")
    table.add_column("")
    for name in ("parameters", "multiply-adds\n/source token", "multiply-adds\n/target token"):
        table.add_column(name, justify="right", no_wrap=True)

    def add(name: str, part: Cost, last: bool = False) -> None:
        table.add_row(name, *(f"{number:,.0f}" for number in astuple(part)), end_section=last)

    attention, model = _totals(parts)
    chosen = _kinds(args)
    for place, kind in chosen.items():
        add(f"{place}: {kind}", parts[place], last=place == list(chosen)[-1])
    add("all attention", attention)
    add("the rest", parts["rest"])
    table.add_row("  of it, embedding", f"{embedding:,}", "", "", end_section=True)
    add("model", model)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Multiply-adds of projections, scores and weighted sums, for sentences of "
        f"{args.source} source and {args.target} target tokens: a source token's once a sentence, "
        f"a target token's for each hypothesis, where it sees {(args.target + 1) / 2:g} target "
        "tokens on average.\n"
        f"Keys and values kept in {args.dtype}: {cache.per_source_token:,} bytes a source token, "
        f"{cache.per_target_token:,} bytes a target token of each hypothesis; "
        f"{cache.per_sentence(args.source, args.target):,} bytes a sentence, "
        f"{cache.per_sentence(args.source, args.target, args.beam):,} bytes with a beam of "
        f"{args.beam}."
    )
