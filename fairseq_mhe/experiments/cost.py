"""``fairseq-mhe cost``: parameters, multiply-adds and cache of a row with a kind of attention."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from rich.console import Console
from rich.table import Table

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.build import VOCABULARY, build_on_meta
from fairseq_mhe.models.counting import Cost, cache_bytes, costs, embedding_parameters
from fairseq_mhe.models.families import TRANSLATION, language_archs
from fairseq_mhe.models.options import PLACES, kinds, size_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe cost``."""
    add = parser.add_argument
    help_ = f"size of the model: {', '.join([*ROWS, *SMALL_ROWS])}; or an architecture of a "
    help_ += f"language model: {', '.join(language_archs())}"
    add("row", metavar="ROW", help=help_)
    add("attention", metavar="ATTENTION", help=f"kind of attention: {', '.join(KINDS)}")
    for place in PLACES:
        add(f"--{place}-attention", metavar="KIND", help=f"another kind of {place} attention")
    for name, (option, users) in size_options().items():
        flags = dict.fromkeys(f"--{flag.replace('_', '-')}" for flag in (option.name, name))
        add(*flags, dest=name, type=int, metavar="N", help=f"{', '.join(users)}: {option.help}")
    for name, default, what in (
        ("source", 25, "source tokens of a sentence"),
        ("target", 25, "target tokens of its translation"),
        ("beam", 5, "hypotheses of a beam search"),
        ("vocab-size", VOCABULARY, "joined vocabulary"),
    ):
        help_ = f"{what} (default: %(default)s)"
        add(f"--{name}", type=positive, default=default, metavar="N", help=help_)
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print what a model costs, as a table or as JSON."""
    names = (*PLACES.values(), *size_options())
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    model = build_on_meta(args.row, args.attention, args.vocab_size, **given)
    parts = costs(model, args.source, (args.target + 1) / 2)
    attention = sum((parts[place] for place in PLACES), Cost())
    parts |= {"attention": attention, "model": attention + parts["rest"]}
    cache = cache_bytes(model)
    places = language_archs().get(args.row, TRANSLATION).places
    report = {
        "row": args.row,
        "attention": {place: kind for place, kind in kinds(args).items() if place in places},
        "source_tokens": args.source,
        "target_tokens": args.target,
        "beam": args.beam,
        "vocabulary": args.vocab_size,
        "attention_parameters": attention.parameters,
        "embedding_parameters": embedding_parameters(model),
        "total_parameters": parts["model"].parameters,
        "multiply_adds": {
            name: {
                "per_source_token": _plain(parts[name].source),
                "per_target_token": _plain(parts[name].target),
            }
            for name in ("attention", "model")
        },
        "cache_bytes": {
            "per_source_token": cache.per_source_token,
            "per_target_token": cache.per_target_token,
            "per_sentence": cache.per_sentence(args.source, args.target),
            "per_sentence_with_beam": cache.per_sentence(args.source, args.target, args.beam),
        },
    }
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        _show(report, parts)


def _plain(number: float) -> float:
    """A whole number without a decimal point."""
    return int(number) if number == int(number) else number


def _show(report: Mapping[str, Any], parts: Mapping[str, Cost]) -> None:
    table = Table(title=f"{report['row']} with a vocabulary of {report['vocabulary']:,}")
    table.add_column("")
    for name in ("parameters", "multiply-adds\n/source token", "multiply-adds\n/target token"):
        table.add_column(name, justify="right", no_wrap=True)

    def add(name: str, part: str) -> None:
        table.add_row(name, *(f"{number:,.0f}" for number in astuple(parts[part])))

    for place, kind in report["attention"].items():
        add(f"{place}: {kind}", place)
    table.add_section()
    add("all attention", "attention")
    add("the rest", "rest")
    table.add_row("  of it, embedding", f"{report['embedding_parameters']:,}", "", "")
    table.add_section()
    add("model", "model")
    source, target, beam = (report[name] for name in ("source_tokens", "target_tokens", "beam"))
    cache = report["cache_bytes"]
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Multiply-adds of projections, scores and weighted sums, for sentences of "
        f"{source} source and {target} target tokens: a source token's once a sentence, "
        f"a target token's for each hypothesis, where it sees {(target + 1) / 2:g} target "
        "tokens on average.\n"
        f"Keys and values kept in float32: {cache['per_source_token']:,} bytes a source "
        f"token, {cache['per_target_token']:,} bytes a target token of each hypothesis; "
        f"{cache['per_sentence']:,} bytes a sentence, "
        f"{cache['per_sentence_with_beam']:,} bytes with a beam of {beam}."
    )
