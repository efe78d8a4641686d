"""``fairseq-mhe table``: what finished runs say, as a table, JSON, a picture and translations."""

import argparse
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import read_json, write_json, write_text
from fairseq_mhe.common.tables import Column, Look, align, column, csv_text
from fairseq_mhe.report import plots
from fairseq_mhe.report.notes import Summary, paper_notes, quickstart_notes, training_notes
from fairseq_mhe.report.results import BASELINE, Cell, gather, label, summarise
from fairseq_mhe.report.significance import LEAST_BASELINE, too_weak

#: Sample translations shown, and the seed that draws them.
_SAMPLES, _SAMPLES_SEED = 10, 1


def _interval(summary: Mapping[str, Any]) -> str:
    low, high = summary["prr_low"], summary["prr_high"]
    return "" if low is None else f"{low:.1f} to {high:.1f}"


#: The headings of those columns that the quickstart's table leaves out: where there is one row of
#: models only, and where they are empty.
_ROW, _DEVIATION = "row", "sd"
#: Those that compare with the baseline.
_PRR, _PRR_INTERVAL, _P = "PRR", "PRR 95%", "p"
_QUICKSTART_COLUMNS = (
    column(_ROW, "row"),
    column("attention", "attention"),
    column("attention parameters", "attention_parameters", ","),
    column("total parameters", "total_parameters", ","),
    column("KV bytes/token", "kv_bytes_per_token", ","),
    column("BLEU", "bleu", ".2f"),
    column("±", "bleu_confidence", ".2f"),
    column(_DEVIATION, "bleu_deviation", ".2f"),
    column("chrF", "chrf", ".2f"),
    column("valid loss", "valid_loss", ".3f"),
    column(_PRR, "prr", ".1f"),
    column(_P, "p_value", ".4f"),
    column("training tokens/s", "tokens_per_second", ",.0f"),
    column("generation sentences/s", "sentences_per_second", ",.1f"),
)
#: The published table, with the paper's numbers.
_PAPER_COLUMNS: tuple[Column, ...] = (
    column("row", "row"),
    column("N", "layers"),
    column("d_m", "width"),
    column("n", "heads"),
    column("d", "head_width"),
    column("P_drop", "dropout", "g"),
    column("#Steps", "updates", ","),
    column("attention", "attention"),
    ("#Params (M)", lambda summary: f"{summary['attention_parameters'] / 1e6:.2f}"),
    column("paper", "paper_parameters"),
    column("BLEU", "bleu", ".2f"),
    column("paper", "paper_bleu", ".1f"),
    column(_PRR, "prr", ".1f"),
    column("paper", "paper_prr", ".1f"),
)
#: What the paper does not print.
_MORE_COLUMNS: tuple[Column, ...] = (
    column("row", "row"),
    column("attention", "attention"),
    ("seeds", lambda summary: str(len(summary["seeds"]))),
    column("BLEU", "bleu", ".2f"),
    column("± 95%", "bleu_confidence", ".2f"),
    column("sd of seeds", "bleu_deviation", ".2f"),
    (_PRR_INTERVAL, _interval),
    column(_P, "p_value", ".4f"),
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


def _weak_rows(summaries: Sequence[Summary]) -> set[str]:
    """The rows whose baseline learned nothing, so that nothing is compared with it."""
    return {
        summary["row"]
        for summary in summaries
        if summary["attention"] == BASELINE and summary["bleu"] < LEAST_BASELINE
    }


@dataclass(frozen=True)
class Preset:
    """One way to show results.

    ``tables``: the columns of each; ``look``: of the Markdown; ``files``: all that is written;
    ``notes``: what stands below the tables; ``paper``: the paper's numbers, too, and no empty
    columns.
    """

    tables: tuple[tuple[Column, ...], ...]
    look: Look
    files: tuple[str, ...]
    notes: Callable[[Sequence[Cell], Sequence[Summary]], list[str]]
    paper: bool

    def written(self, columns: Sequence[Column], summaries: Sequence[Summary]) -> list[list[str]]:
        """The headings of the columns that have something to say, and a line for each summary."""
        kept = []
        weak = _weak_rows(summaries)
        for heading, write in columns:
            texts = [write(summary) for summary in summaries]
            if heading in (_PRR, _PRR_INTERVAL, _P):
                rows = [summary["row"] for summary in summaries]
                texts = ["-" if r in weak else text for r, text in zip(rows, texts, strict=True)]
            if self._says_something(heading, texts):
                kept.append([heading, *texts])
        return [list(line) for line in zip(*kept, strict=True)]

    def _says_something(self, heading: str, texts: Sequence[str]) -> bool:
        if heading == _ROW and not self.paper:
            return len(set(texts)) > 1
        return any(texts) or not (self.paper or heading == _DEVIATION)

    def aligned(self, summaries: Sequence[Summary], look: Look) -> str:
        """The tables in one of the looks."""
        found = []
        for columns in self.tables:
            headings, *lines = self.written(columns, summaries)
            left = [i for i, name in enumerate(headings) if name in ("row", "attention")]
            found.append(align(headings, lines, look, left))
        return "\n\n".join(found)


_FILES = ("table.md", "table.json", "picture.png", "samples.md")
QUICKSTART = Preset((_QUICKSTART_COLUMNS,), "markdown", _FILES, quickstart_notes, paper=False)
_PAPER_FILES = ("table.md", "table.tex", "table.csv", *_FILES[1:])
PAPER = Preset((_PAPER_COLUMNS, _MORE_COLUMNS), "wide", _PAPER_FILES, paper_notes, paper=True)
_PRESETS = {"quickstart": QUICKSTART, "paper": PAPER}


def write_table(
    cells: Sequence[Cell],
    output: Path,
    title: str,
    preset: Preset = QUICKSTART,
    unfinished: Sequence[str] = (),
) -> None:
    """Write the preset's files into ``output``; the table says that ``unfinished`` are missing."""
    title, summaries = one_line(title), summarise(cells, preset.paper)
    notes = preset.notes(cells, summaries)
    if _weak_rows(summaries):
        notes.append(f"PRR and p are - where {too_weak(BASELINE)}.")
    notes += training_notes(cells)
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    if preset.paper and len({cell.row for cell in cells}) > 1:
        plots.plot_rows(summaries, output, title)
    else:
        curves = [(label(cell, cells), read_json(cell.runs[0].metrics)) for cell in cells]
        plots.plot(summaries, curves, output, title)
    write_text(output / "samples.md", _samples(cells, title))
    if preset.paper:
        names = [*(name for name in summaries[0] if name != "seeds"), "seeds"]
        values = [{**s, "seeds": " ".join(map(str, s["seeds"]))} for s in summaries]
        write_text(output / "table.csv", csv_text(values, names))
        told = (title, "Needs \\usepackage{booktabs}.", *notes)
        comments = [f"% {one_line(line)}" for line in told]
        lines = [*comments, preset.aligned(summaries, "latex"), ""]
        write_text(output / "table.tex", "\n".join(lines))
    listed = "\n".join(f"- {note}" for note in notes)
    tables = preset.aligned(summaries, preset.look)
    write_text(output / "table.md", f"# {title}\n\n{tables}\n\n{listed}\n")
    write_json(output / "table.json", summaries)


def show_table(output: Path, title: str, console: Console, preset: Preset = QUICKSTART) -> None:
    """Print a table; the quickstart's on a terminal has a column for each kind, so that it fits."""
    if preset.paper or not console.is_terminal:
        print((output / "table.md").read_text(encoding="utf-8"), end="")
        return
    summaries = read_json(output / "table.json")
    shown = Table("", title=title, show_header=False)
    for _ in summaries:
        shown.add_column(justify="right", overflow="fold")
    for line in zip(*QUICKSTART.written(_QUICKSTART_COLUMNS, summaries), strict=True):
        shown.add_row(*line)
    console.print(shown)
    for first in summaries[:1]:
        console.print(f"BLEU: {first['signature']}", highlight=False)


def _samples(cells: Sequence[Cell], title: str) -> str:
    """Translations of some sentences, drawn at random and not chosen."""
    sources, references = cells[0].lines("sources"), cells[0].lines("references")
    outputs = {label(cell, cells): cell.lines("hypotheses") for cell in cells}
    drawn = random.Random(_SAMPLES_SEED).sample(range(len(sources)), min(_SAMPLES, len(sources)))  # noqa: S311
    told = f"Drawn at random (seed {_SAMPLES_SEED}), not chosen."
    lines = [f"# {title}: sample translations", "", told, ""]
    for number in sorted(drawn):
        lines += [f"## Line {number + 1}", "", f"- source: {sources[number]}"]
        lines += [f"- reference: {references[number]}"]
        lines += [f"- {name}: {output[number] or '(nothing)'}" for name, output in outputs.items()]
        lines.append("")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe table``."""
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    add("--out", type=Path, required=True, help=f"folder for {', '.join(QUICKSTART.files)}")
    told = "paper: the paper's table with its numbers, as run-table's (default: %(default)s)"
    add("--columns", choices=_PRESETS, default="quickstart", help=told)
    add("--subset", default="test", help="the data set that was scored (default: %(default)s)")
    add("--title", default="Kinds of attention", help="heading (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Write the table and print it."""
    preset = _PRESETS[args.columns]
    write_table(gather(args.runs, args.subset), args.out, args.title, preset)
    show_table(args.out, args.title, Console(), preset)
