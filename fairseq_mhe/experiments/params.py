"""``fairseq-mhe params``: parameters of the paper's rows and setting, counted in what is built."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from fairseq_mhe.attention import KINDS
from fairseq_mhe.models.architectures import ROBERTA_ROWS, ROWS, SMALL_ROWS
from fairseq_mhe.models.build import VOCABULARY, build_on_meta, sublayers
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.models.options import size_options
from fairseq_mhe.report.published import BERT_BASE, SCORES, TASKS, peop, prr, published

#: The paper's pre-trained language models, and the architecture of their sizes.
SETTINGS = {"bert-base": "roberta_mhe_base"}
#: Columns of a table that goes to a file or a pipe: no number is cut short.
WIDTH = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe params``."""
    add = parser.add_argument
    add("--json", action="store_true", help="print attention parameters as JSON, for programs")
    help_ = (
        "count the attention of the paper's pre-trained models instead, and recompute PRR and PEoP"
    )
    add("--setting", choices=list(SETTINGS), help=help_)


def run(args: argparse.Namespace) -> None:
    """Print the table, or attention parameters as JSON: {row or setting: {kind: parameters}}."""
    if args.json:
        places = [args.setting] if args.setting else [*ROWS, *SMALL_ROWS]
        counts = {
            place: {
                kind: attention_parameters(build_on_meta(SETTINGS.get(place, place), kind))
                for kind in KINDS
            }
            for place in places
        }
        print(json.dumps(counts, indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    if args.setting:
        console.print(*_setting_tables(args.setting))
    else:
        console.print(_table())


def _setting_tables(setting: str) -> Iterator[Table]:
    """The parameters of a setting's attention, and the paper's figures of merit from them."""
    size, models = ROBERTA_ROWS["base"], {k: build_on_meta(SETTINGS[setting], k) for k in KINDS}
    counts = {kind: attention_parameters(model) for kind, model in models.items()}
    own = [
        f"{kind}: {option.name} {getattr(next(sublayers(models[kind]))[2], option.name)}"
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
    words = f"totals with a joined vocabulary of {VOCABULARY:,}; cache in float32"
    table = Table("row", "attention", title=f"Attention without biases; {words}")
    counted = ("total parameters", "KV bytes/target token", "/source token")
    for name in ("attention parameters", "published (M)", *counted):
        table.add_column(name, justify="right")
    for row in (*ROWS, *SMALL_ROWS):
        for kind in KINDS:
            model, printed = build_on_meta(row, kind), published(row, kind)
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
