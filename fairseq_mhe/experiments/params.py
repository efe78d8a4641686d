"""``fairseq-mhe params``: parameters of the paper's rows and setting, counted in sublayers."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from fairseq_mhe.attention import KINDS, Attention
from fairseq_mhe.models.architectures import ROBERTA_ROWS, ROWS, SMALL_ROWS, Row
from fairseq_mhe.models.build import without_memory
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.options import PLACES, build_place, size_options
from fairseq_mhe.report.published import BERT_BASE, SCORES, TASKS, peop, prr, published

#: The sizes of the paper's pre-trained language models, which have an encoder alone.
SETTINGS = {"bert-base": ROBERTA_ROWS["base"]}
#: Columns of a table that goes to a file or a pipe: no number is cut short.
WIDTH = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe params``."""
    add = parser.add_argument
    add("--json", action="store_true", help="print attention parameters as JSON, for programs")
    help_ = "count the attention of the paper's pre-trained models, and recompute PRR and PEoP"
    add("--setting", choices=list(SETTINGS), help=help_)


def run(args: argparse.Namespace) -> None:
    """Print the table, or attention parameters as JSON: {row or setting: {kind: parameters}}."""
    if args.json:
        rows = {**ROWS, **SMALL_ROWS}
        chosen = {args.setting: SETTINGS[args.setting]} if args.setting else rows
        counts = {name: _attention_parameters(size) for name, size in chosen.items()}
        print(json.dumps(counts, indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    if args.setting:
        console.print(*_setting_tables(args.setting))
    else:
        console.print(_table())


def _sublayer(size: Row, kind: str, place: str) -> Attention:
    """A sublayer of a row's models, without memory; all layers have the same."""
    options = argparse.Namespace(**size.options(), attention=kind)
    with without_memory():
        return build_place(options, place)


def _attention_parameters(size: Row) -> dict[str, int]:
    """Kind -> parameters of all attention sublayers of a row's model."""
    places = PLACES if len(size.sides) == 2 else size.sides
    counts = {}
    for kind in KINDS:
        of_layer = sum(total_parameters(_sublayer(size, kind, place)) for place in places)
        counts[kind] = size.layers * of_layer
    return counts


def _setting_tables(setting: str) -> Iterator[Table]:
    """The parameters of a setting's attention, and the paper's figures of merit from them."""
    size = SETTINGS[setting]
    counts = _attention_parameters(size)
    own = [
        f"{kind}: {option.name} {getattr(_sublayer(size, kind, 'encoder'), option.name)}"
        for option, kinds in size_options().values()
        for kind in kinds
    ]
    sizes = f"{size.layers} sublayers, width {size.embed_dim}, {size.heads} heads"
    table = _empty(
        ("attention", "a sublayer", "attention parameters", "published (M)"),
        title=f"{setting}: {sizes}, no biases",
        caption=", ".join(own),
    )
    for kind, count in counts.items():
        each = f"{count // size.layers:,}"
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


def _merit(kind: str, counts: Mapping[str, int], task: int) -> str:
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


def _table() -> Table:
    """Every row with every kind."""
    title = "Attention without biases; cache in float32"
    table = Table("row", "attention", title=title, caption="All of a model: fairseq-mhe cost")
    for name in ("parameters", "published (M)", "KV bytes/target token", "/source token"):
        table.add_column(name, justify="right")
    for row, size in {**ROWS, **SMALL_ROWS}.items():
        for kind, count in _attention_parameters(size).items():
            printed = published(row, kind)
            values = [
                _sublayer(size, kind, place).cached_values for place in ("decoder", "cross")
            ]
            cache = [f"{size.layers * number * 4:,}" for number in values]
            table.add_row(
                row, kind, f"{count:,}", printed.parameters if printed else "", *cache
            )
        table.add_section()
    return table
