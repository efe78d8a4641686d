"""``fairseq-mhe params``: parameters of the paper's rows and setting, counted in what is built."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import fairseq_mhe
from fairseq_mhe.common.arguments import at_least
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.report.published import BERT_BASE, SCORES, TASKS, peop, prr, published

#: The counts, which spare the seconds that building every row with every kind takes.
STORED = Path(__file__).with_name("parameters.json")
#: Columns of a table that goes to a file or a pipe: no number is cut short.
WIDTH = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe params``."""
    parser.add_argument(
        "--json", action="store_true", help="print attention parameters as JSON, for programs"
    )
    parser.add_argument(
        "--setting",
        choices=["bert-base"],
        help="count the attention of the paper's pre-trained models instead, and recompute PRR "
        "and PEoP",
    )
    words = "joined vocabulary of the totals (default: the paper's)"
    parser.add_argument("--vocab-size", type=at_least(5), metavar="N", help=words)


def run(args: argparse.Namespace) -> None:
    """Print the table, or attention parameters as JSON: {row or setting: {kind: parameters}}."""
    if args.vocab_size is not None and (args.json or args.setting):
        option = "--json" if args.json else "--setting"
        raise UserError(
            f"--vocab-size changes totals only, and {option} prints none: leave one of them out"
        )
    counts = _counts()
    if args.json and args.setting:
        print(json.dumps({args.setting: counts["settings"][args.setting]["attention"]}, indent=2))
    elif args.json:
        rows = {
            row: {kind: count["attention"] for kind, count in kinds.items()}
            for row, kinds in counts["rows"].items()
        }
        print(json.dumps(rows, indent=2))
    else:
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        if args.setting:
            console.print(*_setting_tables(args.setting, counts["settings"][args.setting]))
        else:
            console.print(_table(counts["rows"], args.vocab_size or counts["vocabulary"]))


def _counts() -> dict[str, Any]:
    """The stored counts; counted anew if there are other kinds of attention."""
    stored: dict[str, Any] = read_json(STORED)
    attention = sys.modules.get("fairseq_mhe.attention")  # a --user-dir adds kinds to it
    kinds = list(stored["rows"]["base"]) if attention is None else list(attention.KINDS)
    if stored["modules"] == modules_of_kinds() and kinds == list(stored["rows"]["base"]):
        return stored
    fairseq_mhe.register()
    from fairseq_mhe.experiments.row_counts import count_all

    return count_all()


def modules_of_kinds() -> list[str]:
    """The names of the files that define kinds of attention, without importing them."""
    folder = Path(fairseq_mhe.__file__).with_name("attention")
    return sorted(path.stem for path in folder.glob("*.py"))


def _setting_tables(setting: str, counted: dict[str, Any]) -> Iterator[Table]:
    """The parameters of a setting's attention, and the paper's figures of merit from them."""
    counts = counted["attention"]
    table = _empty(
        ("attention", "a sublayer", "attention parameters", "published (M)"),
        title=f"{setting}: {counted['sizes']}, no biases",
        caption=counted["own"],
    )
    for kind, count in counts.items():
        each = f"{count // counted['sublayers']:,}"
        table.add_row(kind, each, f"{count:,}", BERT_BASE.get(kind, ""))
    yield table
    table = _empty(
        ("attention", *TASKS),
        title="PRR / PEoP, from the published scores and these parameters",
        caption="The published scores have one decimal, so MHE's PEoP is known to about 0.5 only",
    )
    for kind in SCORES:
        table.add_row(kind, *(_merit(kind, counts, task) for task in range(len(TASKS))))
    yield table


def _merit(kind: str, counts: dict[str, int], task: int) -> str:
    """PRR and PEoP, which sha itself has none of."""
    score, sha_score, mha_score = (SCORES[name][task] for name in (kind, "sha", "mha"))
    retained = f"{prr(score, mha_score):.1f}"
    if kind == "sha":
        return f"{retained} / -"
    return f"{retained} / {peop(score, sha_score, counts[kind], counts['sha']):.2f}"


def _empty(headings: Sequence[str], title: str, caption: str) -> Table:
    """A table whose first column is words and the others numbers, none of them cut short."""
    table = Table(title=title, caption=caption)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="right" if index else "left", no_wrap=True)
    return table


def _table(rows: dict[str, dict[str, dict[str, int]]], vocabulary: int) -> Table:
    words = f"totals with a joined vocabulary of {vocabulary:,}; cache in float32"
    table = Table("row", "attention", title=f"Attention without biases; {words}")
    counted = ("total parameters", "KV bytes/target token", "/source token")
    for name in ("attention parameters", "published (M)", *counted):
        table.add_column(name, justify="right")
    for row, kinds in rows.items():
        for kind, count in kinds.items():
            printed = published(row, kind)
            table.add_row(
                row,
                kind,
                f"{count['attention']:,}",
                printed.parameters if printed else "",
                f"{count['without_words'] + vocabulary * count['width']:,}",
                f"{count['per_target_token']:,}",
                f"{count['per_source_token']:,}",
            )
        table.add_section()
    return table
