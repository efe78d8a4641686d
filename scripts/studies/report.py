"""The report of a study: each variant beside its reference, with the command and the machine."""

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from shlex import join
from typing import Any

from fairseq_mhe.common.system import machine, software
from fairseq_mhe.report.plots import plot_study, plot_study_costs
from fairseq_mhe.report.results import Cell, check_scored_alike
from fairseq_mhe.report.study import notes_on_statistics, table_values, variant_rows
from fairseq_mhe.report.table import Block, Table, columns, filled, seed_words
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.recipes import Recipe
from studies.variants import Study, Variant

PROGRAM = "bash scripts/study.sh"


def report(
    study: Study, recipe: Recipe, cells: dict[Variant, Cell], unfinished: list[str], args: Namespace
) -> None:
    """Write the table, JSON and plot of the finished variants, and print the table."""
    check_scored_alike(list(cells.values()))
    references = {variant.name: variant.reference for variant in cells}
    by_name = {variant.name: cell for variant, cell in cells.items()}
    rows = variant_rows(by_name, references)
    for row, variant in zip(rows, cells, strict=True):
        names = ("question", "reference", "attention", "options", "updates")
        row |= {name: getattr(variant, name) for name in names}
    blocks = []
    for question, meaning in study.questions.items():
        if of_question := [row for row in rows if row["question"] == question]:
            heading = f"{question}: {meaning}"
            lines = list(map(table_values, of_question))
            blocks.append(Block(filled(columns("study"), lines), lines, heading))
    signature = next(iter(cells.values())).results[0].scores["bleu"]["signature"]
    seeds = seed_words(rows[0]["seeds"])
    means = f"Means over {seeds}; sd: the standard deviation over them."
    notes = [
        f"BLEU `{signature}` on {args.subset}; valid loss: the lowest of a training, in bits per "
        f"subword. {means if len(rows[0]['seeds']) > 1 else f'One training each, {seeds}.'}",
        f"Except for what a variant's name says, all follow the recipe of {recipe.row}: "
        f"{recipe.training.updates:,} updates of {recipe.training.batch}.",
        *notes_on_statistics(rows),
    ]
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    title = f"{study.title}: {recipe.row}, data {args.data.resolve().name}; {seeds}"
    results: dict[str, Any] = {"row": recipe.row, "training": dict(recipe.training.options)}
    results |= {"signature": signature, "variants": rows, "unfinished": unfinished}
    plot_study(rows, args.out / f"{study.name}.png", title)
    plot_study_costs(rows, args.out / f"{study.name}-costs.png", title)
    write(args, study.name, Table(title, blocks, notes), results)


def write(args: Namespace, name: str, table: Table, results: Mapping[str, Any]) -> None:
    """Write NAME.md and NAME.json into --out, and print the Markdown."""
    device = "cuda" if devices.on_gpu(args) else "cpu"
    facts = {"date": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    facts |= {"command": f"{PROGRAM} {join(args.typed)}", **machine(device), **software()}
    notes = [*table.notes, *(f"{fact}: {value}" for fact, value in facts.items())]
    whole = Table(table.title, table.blocks, notes)
    whole.write(Path(args.out, f"{name}.md"), {"facts": facts, **results})
    print(whole.markdown(), end="")
