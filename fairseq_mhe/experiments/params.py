"""``fairseq-mhe params``: the parameters of every row and setting of the paper, counted in what is really built."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.build import SETTINGS, VOCABULARY, build_on_meta, build_setting
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.report.published import BERT_BASE, SCORES, TASKS, peop, prr, published

#: Columns of a table that goes to a file or a pipe: no number is cut short.
WIDTH = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe params``."""
    parser.add_argument(
        "--json", action="store_true", help="print attention parameters as JSON, for programs"
    )
    parser.add_argument(
        "--setting",
        choices=SETTINGS,
        help="count the attention of the paper's pre-trained models instead, and recompute PRR and PEoP",
    )
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help=f"joined vocabulary of the totals (default: {VOCABULARY})",
    )


def run(args: argparse.Namespace) -> None:
    """Print the table, or its attention parameters as JSON: {row or setting: {kind: parameters}}."""
    if args.vocab_size is not None and (args.json or args.setting):
        option = "--json" if args.json else "--setting"
        raise UserError(
            f"--vocab-size changes totals only, and {option} prints none: leave one of them out"
        )
    if args.json:
        print(json.dumps(_counts(args.setting), indent=2))
    else:
        vocabulary = VOCABULARY if args.vocab_size is None else args.vocab_size
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        console.print(*(_setting_tables(args.setting) if args.setting else [_table(vocabulary)]))


def _counts(setting: str | None) -> dict[str, dict[str, int]]:
    if setting:
        return {
            setting: {kind: attention_parameters(build_setting(setting, kind)) for kind in VARIANTS}
        }
    return {
        row: {kind: attention_parameters(build_on_meta(row, kind)) for kind in VARIANTS}
        for row in (*ROWS, *SMALL_ROWS)
    }


def _setting_tables(setting: str) -> Iterator[Table]:
    """The parameters of a setting's attention, and the paper's figures of merit that follow from them."""
    size = SETTINGS[setting]
    counts = _counts(setting)[setting]
    grouped, collaborative = (build_setting(setting, kind)[0] for kind in ("gqa", "collaborative"))
    parameters = Table(
        title=f"{setting}: {size.sublayers} sublayers, width {size.embed_dim}, {size.heads} heads, no biases",
        caption=f"gqa with {grouped.key_heads} key/value heads, collaborative with D = {collaborative.key_head_dim}",
    )
    _columns(parameters, "a sublayer", "attention parameters", "published (M)")
    for kind, count in counts.items():
        parameters.add_row(
            kind, f"{count // size.sublayers:,}", f"{count:,}", BERT_BASE.get(kind, "")
        )
    yield parameters
    merit = Table(
        title="PRR / PEoP, from the published scores and these parameters",
        caption="The published scores have one decimal, so MHE's PEoP is known to about 0.5 only",
    )
    _columns(merit, *TASKS)
    for kind, scores in SCORES.items():
        merit.add_row(kind, *(_merit(kind, counts, task) for task in range(len(scores))))
    yield merit


def _merit(kind: str, counts: dict[str, int], task: int) -> str:
    """PRR and PEoP, which sha itself has none of."""
    score, sha_score, mha_score = (SCORES[name][task] for name in (kind, "sha", "mha"))
    elasticity = (
        "-" if kind == "sha" else f"{peop(score, sha_score, counts[kind], counts['sha']):.2f}"
    )
    return f"{prr(score, mha_score):.1f} / {elasticity}"


def _columns(table: Table, *names: str) -> None:
    """A first column for the kind of attention and one for each number."""
    table.add_column("attention", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def _table(vocabulary: int) -> Table:
    table = Table(
        title=f"Attention without biases; totals with a joined vocabulary of {vocabulary:,}; cache in float32"
    )
    table.add_column("row")
    table.add_column("attention")
    for name in (
        "attention parameters",
        "published (M)",
        "total parameters",
        "KV bytes/target token",
        "/source token",
    ):
        table.add_column(name, justify="right")
    for row in (*ROWS, *SMALL_ROWS):
        for kind in VARIANTS:
            printed = published(row, kind)
            model = build_on_meta(row, kind, vocabulary)
            cache = cache_bytes(model)
            table.add_row(
                row,
                kind,
                f"{attention_parameters(model):,}",
                printed.parameters if printed else "",
                f"{total_parameters(model):,}",
                f"{cache.per_target_token:,}",
                f"{cache.per_source_token:,}",
            )
        table.add_section()
    return table
