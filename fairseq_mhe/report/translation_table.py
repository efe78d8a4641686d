"""``fairseq-mhe table``: finished runs as a table, JSON, a picture and sample translations."""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import read_json, write_text
from fairseq_mhe.common.tables import Column, column
from fairseq_mhe.report import plots
from fairseq_mhe.report.notes import notes_below
from fairseq_mhe.report.results import Cell, gather, label, summarise
from fairseq_mhe.report.table import Block, Row, Table, filled

#: Sample translations shown, and the seed that draws them.
_SAMPLES, _SAMPLES_SEED = 10, 1


def _compared(heading: str, show: Callable[[Row], str]) -> Column:
    """A comparison with the baseline: a dash where there is none, or it learned nothing."""
    return heading, lambda row: "-" if row["prr"] is None else show(row)


def _interval(row: Row) -> str:
    low, high = row["prr_low"], row["prr_high"]
    return "" if low is None else f"{low:.1f} to {high:.1f}"


_PRR = _compared(*column("PRR", "prr", ".1f"))
_P = _compared(*column("p", "p_value", ".4f"))
_ROW, _DEVIATION = column("row", "row"), column("sd", "bleu_deviation", ".2f")
_QUICKSTART = (
    _ROW,
    column("attention", "attention"),
    column("attention parameters", "attention_parameters", ","),
    column("total parameters", "total_parameters", ","),
    column("KV bytes/token", "kv_bytes_per_token", ","),
    column("BLEU", "bleu", ".2f"),
    column("±", "bleu_confidence", ".2f"),
    _DEVIATION,
    column("chrF", "chrf", ".2f"),
    column("valid loss", "valid_loss", ".3f"),
    _PRR,
    _P,
    column("training tokens/s", "tokens_per_second", ",.0f"),
    column("generation sentences/s", "sentences_per_second", ",.1f"),
)
#: The published table, with the paper's numbers.
_PAPER: tuple[Column, ...] = (
    _ROW,
    column("N", "layers"),
    column("d_m", "width"),
    column("n", "heads"),
    column("d", "head_width"),
    column("P_drop", "dropout", "g"),
    column("#Steps", "updates", ","),
    column("attention", "attention"),
    column("#Params (M)", "attention_parameters", ".2f", unit=1e6),
    column("paper", "paper_parameters"),
    column("BLEU", "bleu", ".2f"),
    column("paper", "paper_bleu", ".1f"),
    _PRR,
    column("paper", "paper_prr", ".1f"),
)
#: What the paper does not print.
_MORE: tuple[Column, ...] = (
    _ROW,
    column("attention", "attention"),
    ("seeds", lambda row: str(len(row["seeds"]))),
    column("BLEU", "bleu", ".2f"),
    column("± 95%", "bleu_confidence", ".2f"),
    column("sd of seeds", "bleu_deviation", ".2f"),
    _compared("PRR 95%", _interval),
    _P,
    column("tokenised BLEU", "bleu_tokenised", ".2f"),
    column("BLEU4", "bleu4", ".2f"),
    column("chrF", "chrf", ".2f"),
    column("COMET", "comet", ".4f"),
    column("valid loss", "valid_loss", ".3f"),
    column("total parameters", "total_parameters", ","),
    column("KV bytes/token", "kv_bytes_per_token", ","),
    column("training tokens/s", "tokens_per_second", ",.0f"),
    column("sentences/s", "sentences_per_second", ",.1f"),
)


def _quickstart_blocks(rows: Sequence[Row]) -> list[Block]:
    """One block, without the column of rows and of deviations where they say nothing."""
    left_out = [] if len({row["row"] for row in rows}) > 1 else [_ROW]
    if not filled([_DEVIATION], rows):
        left_out.append(_DEVIATION)
    return [Block([each for each in _QUICKSTART if each not in left_out], rows)]


def _paper_blocks(rows: Sequence[Row]) -> list[Block]:
    return [Block(filled(columns, rows), rows) for columns in (_PAPER, _MORE)]


@dataclass(frozen=True)
class Preset:
    """One way to show results; ``paper``: with the paper's numbers, and as LaTeX and CSV too."""

    blocks: Callable[[Sequence[Row]], list[Block]]
    files: tuple[str, ...]
    paper: bool


_FILES = ("table.md", "table.json", "picture.png", "samples.md")
QUICKSTART = Preset(_quickstart_blocks, _FILES, paper=False)
_PAPER_FILES = ("table.md", "table.tex", "table.csv", *_FILES[1:])
PAPER = Preset(_paper_blocks, _PAPER_FILES, paper=True)
_PRESETS = {"quickstart": QUICKSTART, "paper": PAPER}


def write_table(
    cells: Sequence[Cell],
    output: Path,
    title: str,
    preset: Preset = QUICKSTART,
    unfinished: Sequence[str] = (),
) -> None:
    """Write the preset's files into ``output``; the table names the ``unfinished`` runs."""
    title, summaries = one_line(title), summarise(cells, preset.paper)
    notes = notes_below(cells, summaries, preset.paper)
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    seeds = sorted({str(run.seed) for cell in cells for run in cell.runs})
    heading = f"{title}; {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"
    if preset.paper and len({cell.row for cell in cells}) > 1:
        plots.plot_rows(summaries, output / "picture.png", heading)
    else:
        curves = {label(cell, cells): read_json(cell.runs[0].metrics) for cell in cells}
        plots.plot(summaries, curves, output / "picture.png", heading)
    write_text(output / "samples.md", _samples(cells, title))
    table = Table(title, preset.blocks(summaries), notes)
    if preset.paper:
        table.write_for_papers(output / "table.tex", summaries)
    table.write(output / "table.md", summaries)


def show_table(output: Path, title: str, console: Console, preset: Preset = QUICKSTART) -> None:
    """Print a table; the quickstart's has a column for each kind on a terminal, so that it fits."""
    if preset.paper or not console.is_terminal:
        print((output / "table.md").read_text(encoding="utf-8"), end="")
        return
    summaries = read_json(output / "table.json")
    grid = Grid("", title=title, show_header=False)
    for _ in summaries:
        grid.add_column(justify="right", overflow="fold")
    (block,) = _quickstart_blocks(summaries)
    for line in zip(*block.lines(), strict=True):
        grid.add_row(*line)
    console.print(grid)
    console.print(f"BLEU: {summaries[0]['signature']}", highlight=False)


def _samples(cells: Sequence[Cell], title: str) -> str:
    """Translations of some sentences, drawn at random."""
    sources, references = cells[0].lines("sources"), cells[0].lines("references")
    outputs = {label(cell, cells): cell.lines("hypotheses") for cell in cells}
    count = min(_SAMPLES, len(sources))
    drawn = random.Random(_SAMPLES_SEED).sample(range(len(sources)), count)  # noqa: S311
    lines = [f"# {title}: sample translations", ""]
    lines += [f"Drawn at random (seed {_SAMPLES_SEED}), not chosen.", ""]
    for number in sorted(drawn):
        lines += [f"## Line {number + 1}", "", f"- source: {sources[number]}"]
        lines += [f"- reference: {references[number]}"]
        lines += [
            f"- {name}: {output[number] or '(nothing)'}" for name, output in outputs.items()
        ]
        lines.append("")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe table``."""
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    add("--out", type=Path, required=True, help=f"folder for {', '.join(QUICKSTART.files)}")
    columns = "paper: the paper's table with its numbers, as run-table's (default: %(default)s)"
    add("--columns", choices=_PRESETS, default="quickstart", help=columns)
    add("--subset", default="test", help="the data set that was scored (default: %(default)s)")
    add("--title", default="Kinds of attention", help="heading (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Write the table and print it."""
    preset = _PRESETS[args.columns]
    write_table(gather(args.runs, args.subset), args.out, args.title, preset)
    show_table(args.out, args.title, Console(), preset)
