"""``fairseq-mhe table``: finished runs as a table, JSON and a picture."""

import csv
import io
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import output_folder, write_text
from fairseq_mhe.common.tables import align, listed
from fairseq_mhe.report import columns, plots
from fairseq_mhe.report.results import (
    BASELINE,
    Cell,
    differences,
    gather,
    label,
    precisions,
    summarise,
)
from fairseq_mhe.report.significance import too_weak
from fairseq_mhe.report.table import Block, Table, Values, filled, seed_words
from fairseq_mhe.runs.scoring import RESAMPLES

#: The files that `write_table` writes.
FILES = ("table.md", "table.tex", "table.csv", "table.json", "picture.png")


def blocks_of(rows: Sequence[Values]) -> list[Block]:
    """Return the results without empty columns, and the sizes of the models of several rows."""
    several_seeds = any(len(row["seeds"]) > 1 for row in rows)
    lines = []
    for row in rows:  # with values that table.json does not need
        trainings = len(row["seeds"]) if several_seeds else None
        has_paper = row.get("paper_bleu") is not None
        beside_the_paper = row["bleu_tokenised"] if has_paper else None
        extra = {"trainings": trainings, "beside_the_paper": beside_the_paper}
        lines.append({**row, **extra})
    shown = filled(columns.TRANSLATION, lines, always=("PRR", "p"))
    of_rows = {line["row"]: line for line in lines}
    if len(of_rows) == 1:
        return [Block(shown[1:], lines)]  # without the column "row"
    sizes = list(of_rows.values())
    return [Block(shown, lines), Block(filled(columns.SIZES, sizes), sizes, "Sizes")]


def write_table(
    cells: Sequence[Cell], output: Path, title: str, unfinished: Sequence[str] = ()
) -> Table:
    """Write `FILES`; a note in the table lists the ``unfinished`` runs."""
    title = one_line(title)
    rows = summarise(cells)
    blocks = blocks_of(rows)
    notes = notes_below(cells, rows, blocks)
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    seeds = sorted({seed for row in rows for seed in row["seeds"]})
    heading = f"{title}; {seed_words(seeds)}"
    curves = {}
    if len({cell.row for cell in cells}) == 1:
        for cell in cells:
            curves[cell.kind] = [result.metrics for result in cell.results]
    plots.plot_translation(rows, curves, output / "picture.png", heading)
    table = Table(title, blocks, notes)
    write_text(output / "table.tex", table.latex())
    stream = io.StringIO()
    writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "seeds": " ".join(map(str, row["seeds"]))})
    write_text(output / "table.csv", stream.getvalue())
    table.write(output / "table.md", rows)
    return table


def show_table(table: Table) -> None:
    """Print a table; on a terminal its results are transposed, so that they fit the width."""
    text = table.markdown()
    if sys.stdout.isatty():
        block, *_ = table.blocks
        headings, *lines = zip(*block.lines(), strict=True)
        signature = block.rows[0]["signature"]
        text = f"{table.title}\n\n{align(headings, lines)}\n\nBLEU: {signature}\n"
    print(text, end="")


def notes_below(
    cells: Sequence[Cell], rows: Sequence[Values], blocks: Sequence[Block]
) -> list[str]:
    """Return notes on what the columns mean and on how the models were trained."""
    headings = {heading for block in blocks for heading, _ in block.columns}
    notes = []
    for of_column, note in _notes_on_columns(cells, rows):
        if headings & set(of_column):
            notes.append(note)
    return [*notes, *_notes_on_runs(cells, rows), *_notes_on_training(cells)]


def _notes_on_columns(
    cells: Sequence[Cell], rows: Sequence[Values]
) -> list[tuple[tuple[str, ...], str]]:
    """Return each note with the headings of the columns that it explains."""
    first = rows[0]
    results = [result for cell in cells for result in cell.results]
    training = _distinct(result.metrics.get("measured") for result in results)
    generation = _distinct(result.generation.get("measured") for result in results)
    case = ", lower-cased" if "|case:lc|" in first["signature"] else ""
    sentences = f"{first['sentences']:,} detokenised{case} sentences"
    chance = "sentences alone, so they do not cover other trainings"
    half_width = "half the 95% interval of mean BLEU"
    numbers_of_seeds = {len(row["seeds"]) for row in rows}
    if max(numbers_of_seeds) > 1:
        chance = "sentences and seeds"
        if 1 in numbers_of_seeds:
            half_width += ", of a single training over sentences alone"
    too_few = ""
    if any(row["attention"] == BASELINE and row["prr"] is None for row in rows):
        too_few = f" PRR is - where {too_weak(BASELINE)}."
    speed = f"Generation sentences/s: the search alone, {generation}."
    tokenised = "on Moses' tokens with hyphenated compounds split, as older papers report"
    return [
        (("BLEU",), f"BLEU `{first['signature']}` on {sentences} ({results[0].subset})."),
        (("±",), f"±: {half_width}."),
        (("sd",), "sd: standard deviation of BLEU over seeds."),
        (("PRR",), f"PRR: BLEU in percent of {BASELINE}'s.{too_few}"),
        (
            ("±", "PRR 95%"),
            f"Intervals: bootstrap with {RESAMPLES:,} resamples over {chance}.",
        ),
        (
            ("p",),
            f"p: two-sided, of the difference from {BASELINE}, by the same resamples.",
        ),
        (
            ("tokenised BLEU",),
            f"Tokenised BLEU: `{first['tokenised_signature']}` {tokenised}; no other column "
            "compares with it.",
        ),
        (("chrF",), f"chrF `{first['chrf_signature']}`."),
        (
            ("valid loss",),
            "Valid loss: the lowest of a training, in bits per target token.",
        ),
        (
            ("paper", "paper (M)"),
            "paper: numbers of WMT14, by Xue & Aletras; how they were scored is not published.",
        ),
        (
            ("N",),
            "N: encoder plus decoder layers; d_m, n, d: the encoder's width, heads, head width.",
        ),
        (
            ("attention parameters",),
            "Attention parameters: encoder self-, decoder self- and cross-attention.",
        ),
        (
            ("KV bytes/token",),
            "KV bytes/token: key/value cache in float32 for each generated token of each "
            "hypothesis.",
        ),
        (
            ("training tokens/s",),
            f"Training tokens/s: target tokens, median over the log, {training}.",
        ),
        (("generation sentences/s",), speed),
    ]


def _distinct(texts: Iterable[str | None], between: str = "; ") -> str:
    return between.join(sorted({text for text in texts if text}))


def _notes_on_runs(cells: Sequence[Cell], rows: Sequence[Values]) -> list[str]:
    """Return a note with the seeds, batches and versions of the trainings."""
    seeds_of = {}
    for cell, row in zip(cells, rows, strict=True):
        seeds_of[label(cell, cells)] = ", ".join(map(str, row["seeds"]))
    different = set(seeds_of.values())
    seeds = listed(seeds_of, "; ") if len(different) > 1 else different.pop()
    runs = [result.run for cell in cells for result in cell.results]
    batches = _distinct((run.training.batch for run in runs), " or ")
    versions = _distinct((listed(run.config["versions"]) for run in runs), " or ")
    return [f"Seeds: {seeds}. Batches of {batches}.", f"{versions}."]


def _notes_on_training(cells: Sequence[Cell]) -> list[str]:
    """Return notes on how the models were trained and on differences that hinder a comparison."""
    notes = []
    results = [result for cell in cells for result in cell.results]
    trained_in = precisions([result.run for result in results])
    if trained_in != "float32":
        notes.append(f"Trained in {trained_in}.")
    rows: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.kind != BASELINE):
        rows.setdefault(cell.row, []).append(cell)
    for first, *others in rows.values():
        different = []  # `gather` ensures that all seeds of a cell have the settings of the first
        for cell in others:
            if differing := differences(first.results[0].run, cell.results[0].run):
                different.append(f"{label(cell, cells)} ({listed(differing)})")
        if different:
            note = f"Other settings than {label(first, cells)}"
            notes.append(f"{note}, compare with care: {', '.join(different)}.")
    for result in results:
        name = result.run.name
        if given := result.scores.get("given_tokens"):
            notes.append(f"{name}, on the tokens of the given text: {given['line']}.")
        if updates := result.metrics.get("ended_by_patience"):
            notes.append(f"{name} was ended by patience after {updates:,} updates.")
    return notes


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs")
    add("--out", type=Path, required=True, help=f"folder for {', '.join(FILES)}")
    default = "(default: %(default)s)"
    add("--subset", default="test", help=f"data set whose scores to show {default}")
    add("--title", default="Kinds of attention", help=f"heading {default}")


def run(args: Namespace) -> None:
    """Write the table and print it."""
    output_folder(args.out)
    show_table(write_table(gather(args.runs, args.subset), args.out, args.title))
