"""The published table's columns with our numbers beside the paper's, from finished run folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from fairseq_mhe.common.files import read_json, write_json, write_text
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.report import plots, table
from fairseq_mhe.report.published import published
from fairseq_mhe.report.table import BASELINE, Cell
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.scoring import RESAMPLES
from fairseq_mhe.runs.training import training_of

#: What a table consists of.
FILES = ("table.md", "table.tex", "table.csv", "table.json", "picture.png", "samples.md")

Written = Callable[[dict[str, Any]], str]


def _value(name: str, form: str = "{}") -> Written:
    """How a value of table.json is written; nothing where it is null."""
    return lambda summary: "" if summary[name] is None else form.format(summary[name])


def _interval(summary: dict[str, Any]) -> str:
    return (
        ""
        if summary["prr_low"] is None
        else f"{summary['prr_low']:.1f} to {summary['prr_high']:.1f}"
    )


def _millions(summary: dict[str, Any]) -> str:
    return f"{summary['attention_parameters'] / 1e6:.2f}"


#: The published table, with the paper's numbers.
PAPER_COLUMNS: tuple[tuple[str, Written], ...] = (
    ("row", _value("row")),
    ("N", _value("layers")),
    ("d_m", _value("width")),
    ("n", _value("heads")),
    ("d", _value("head_width")),
    ("P_drop", _value("dropout", "{:g}")),
    ("#Steps", _value("updates", "{:,}")),
    ("attention", _value("attention")),
    ("#Params (M)", _millions),
    ("paper", _value("paper_parameters")),
    ("BLEU", _value("bleu", "{:.2f}")),
    ("paper", _value("paper_bleu", "{:.1f}")),
    ("PRR", _value("prr", "{:.1f}")),
    ("paper", _value("paper_prr", "{:.1f}")),
)
#: What the paper does not print.
MORE_COLUMNS: tuple[tuple[str, Written], ...] = (
    ("row", _value("row")),
    ("attention", _value("attention")),
    ("seeds", lambda summary: str(len(summary["seeds"]))),
    ("BLEU", _value("bleu", "{:.2f}")),
    ("± 95%", _value("bleu_confidence", "{:.2f}")),
    ("sd of seeds", _value("bleu_deviation", "{:.2f}")),
    ("PRR 95%", _interval),
    ("p", _value("p_value", "{:.4f}")),
    ("tokenised BLEU", _value("bleu_tokenised", "{:.2f}")),
    ("chrF", _value("chrf", "{:.2f}")),
    ("COMET", _value("comet", "{:.4f}")),
    ("total parameters", _value("total_parameters", "{:,}")),
    ("KV bytes/token", _value("kv_bytes_per_token", "{:,}")),
    ("training tokens/s", _value("tokens_per_second", "{:,.0f}")),
    ("sentences/s", _value("sentences_per_second", "{:,.1f}")),
)


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """What table.json holds: ``table.summarise``'s objects with the row's sizes and the paper's numbers."""
    return [
        {**_row(cell), **summary}
        for cell, summary in zip(cells, table.summarise(cells), strict=True)
    ]


def _row(cell: Cell) -> dict[str, Any]:
    row, training = {**ROWS, **SMALL_ROWS}[cell.row], training_of(cell.runs[0])
    printed = published(cell.row, cell.kind)
    found = [run.subset(cell.subset) / comet.FILE for run in cell.runs]
    scores = [read_json(path)["score"] for path in found if path.exists()]
    return {
        "layers": 2 * row.layers,
        "width": row.embed_dim,
        "heads": row.heads,
        "head_width": row.embed_dim // row.heads,
        "dropout": training.dropout,
        "updates": training.updates,
        "batch_tokens": training.batch_tokens,
        "paper_parameters": printed and printed.parameters,
        "paper_bleu": printed and printed.bleu,
        "paper_prr": printed and printed.prr,
        "comet": round(sum(scores) / len(scores), 4) if len(scores) == len(found) else None,
    }


def write(cells: Sequence[Cell], unfinished: Sequence[str], output: Path, title: str) -> None:
    """Write ``FILES`` into ``output``.

    Args:
        cells: finished ones.
        unfinished: names of runs that are missing, which the table says.
        output: a folder.
        title: heading.
    """
    summaries = summarise(cells)
    if len({cell.row for cell in cells}) > 1:
        plots.plot_rows(summaries, output, title)
    else:
        curves = [(cell.kind, read_json(cell.runs[0].metrics)) for cell in cells]
        plots.plot(summaries, curves, output, title)
    notes = _notes(cells, summaries, unfinished)
    write_text(output / "samples.md", table.samples(cells, title))
    write_text(output / "table.csv", _csv(summaries))
    write_text(output / "table.tex", _latex(summaries, notes, title))
    write_text(output / "table.md", _markdown(summaries, notes, title))
    write_json(output / "table.json", summaries)


def _table(
    summaries: Sequence[dict[str, Any]], columns: Sequence[tuple[str, Written]], form: str
) -> str:
    """The columns that have something to say, in one of tabulate's formats."""
    rows = [[write(summary) for _, write in columns] for summary in summaries]
    kept = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    headings = [columns[index][0] for index in kept]
    return tabulate(
        [[row[index] for index in kept] for row in rows],
        headings,
        tablefmt=form,
        disable_numparse=True,
        colalign=["left" if heading in ("row", "attention") else "right" for heading in headings],
    )


def _markdown(summaries: Sequence[dict[str, Any]], notes: Sequence[str], title: str) -> str:
    paper, more = (_table(summaries, columns, "pipe") for columns in (PAPER_COLUMNS, MORE_COLUMNS))
    return "\n".join([f"# {title}", "", paper, "", more, "", *(f"- {note}" for note in notes), ""])


def _latex(summaries: Sequence[dict[str, Any]], notes: Sequence[str], title: str) -> str:
    """Both tables with booktabs' rules; the notes as comments."""
    comments = [f"% {line}" for line in (title, "Needs \\usepackage{booktabs}.", *notes)]
    paper, more = (
        _table(summaries, columns, "latex_booktabs") for columns in (PAPER_COLUMNS, MORE_COLUMNS)
    )
    return "\n".join([*comments, paper, "", more, ""])


def _csv(summaries: Sequence[dict[str, Any]]) -> str:
    """Every key of table.json that is a single value, for spreadsheets."""
    stream = io.StringIO()
    names = [name for name in summaries[0] if name != "seeds"]
    writer = csv.DictWriter(stream, [*names, "seeds"], lineterminator="\n")
    writer.writeheader()
    for summary in summaries:
        writer.writerow({**summary, "seeds": " ".join(map(str, summary["seeds"]))})
    return stream.getvalue()


def _notes(
    cells: Sequence[Cell], summaries: Sequence[dict[str, Any]], unfinished: Sequence[str]
) -> list[str]:
    first, run = summaries[0], cells[0].runs[0]
    several = any(len(summary["seeds"]) > 1 for summary in summaries)
    trained = sorted({read_json(run.metrics)["measured"] for cell in cells for run in cell.runs})
    generated = sorted(
        {value["measured"] for cell in cells for value in cell.values("generation.json")}
    )
    seeds = sorted({seed for summary in summaries for seed in summary["seeds"]})
    batches = sorted({summary["batch_tokens"] for summary in summaries})
    notes = [
        "The paper's numbers (Xue & Aletras 2023) are of WMT14 English-German; its way of scoring is not published.",
        f"BLEU {first['signature']}, chrF {first['chrf_signature']}, on {first['sentences']:,} detokenised sentences "
        f"({cells[0].subset}).",
        f"PRR: BLEU in percent of {BASELINE}'s; p: sacreBLEU's paired bootstrap against {BASELINE}, {RESAMPLES:,} "
        f"resamples of the sentences{' and of the seeds' if several else ''}.",
        "#Params: attention only. KV bytes/token: key/value cache in float32 for each generated token of a hypothesis.",
        f"Batches of {' or '.join(f'{batch:,}' for batch in batches)} tokens; seeds {', '.join(map(str, seeds))}.",
        f"Training: target tokens/s, {'; '.join(trained)}. Translation: fairseq's clock, {'; '.join(generated)}.",
        ", ".join(f"{name} {version}" for name, version in run.config["versions"].items()) + ".",
    ]
    if first["tokenised_signature"]:
        old = f"Tokenised BLEU: {first['tokenised_signature']} on Moses' tokens with hyphenated compounds split, as older"
        notes.insert(2, f"{old} papers report; no other column compares with it.")
    if unfinished:
        notes.append(f"Not finished, and left out: {', '.join(unfinished)}.")
    return notes
