"""``fairseq-mhe table``: what finished run folders say, as a table, JSON, a picture and sample translations."""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json, write_text
from fairseq_mhe.report.plots import plot
from fairseq_mhe.report.significance import Comparison, compare_seeds
from fairseq_mhe.runs.run import Run, read_run
from fairseq_mhe.runs.scoring import RESAMPLES, read_lines

#: The kind that the others are compared with.
BASELINE = "mha"
#: What a table consists of.
FILES = ("table.md", "table.json", "picture.png", "samples.md")
#: Sample translations shown, and the seed that draws them.
SAMPLES, SAMPLES_SEED = 10, 1

#: Heading, the key in table.json, and how the value is written.
COLUMNS = (
    ("attention", "attention", "{}"),
    ("attention parameters", "attention_parameters", "{:,}"),
    ("total parameters", "total_parameters", "{:,}"),
    ("KV bytes/token", "kv_bytes_per_token", "{:,}"),
    ("BLEU", "bleu", "{:.2f}"),
    ("±", "bleu_confidence", "{:.2f}"),
    ("sd", "bleu_deviation", "{:.2f}"),
    ("chrF", "chrf", "{:.2f}"),
    ("PRR", "prr", "{:.1f}"),
    ("p", "p_value", "{:.4f}"),
    ("training tokens/s", "tokens_per_second", "{:,.0f}"),
    ("generation sentences/s", "sentences_per_second", "{:,.1f}"),
)


@dataclass(frozen=True)
class Cell:
    """The finished runs of one row and kind of attention, one a seed, and their translations of one data set."""

    row: str
    kind: str
    runs: tuple[Run, ...]
    subset: str

    def values(self, name: str) -> list[dict[str, Any]]:
        """A JSON file of the data set's folder, of each run."""
        return [read_json(run.subset(self.subset) / name) for run in self.runs]

    def lines(self, name: str) -> list[str]:
        """A text of the first seed's folder."""
        return read_lines(self.runs[0].subset(self.subset) / name)

    def hypotheses(self) -> list[list[str]]:
        """Every seed's translations."""
        return [read_lines(run.subset(self.subset) / "hypotheses.txt") for run in self.runs]


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Group run folders by row and kind, in the order given.

    Raises:
        UserError: a folder is no run, is not finished, or was scored on other sentences than the
        first.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for folder in folders:
        run = read_run(folder)
        missing = [
            path
            for path in (run.metrics, run.counts, run.subset(subset) / "scores.json")
            if not path.is_file()
        ]
        if missing:
            raise UserError(f"{folder} is not finished: it has no {missing[0].relative_to(folder)}")
        groups.setdefault((run.row, run.kind), []).append(run)
    if not groups:
        raise UserError("no runs: give the folders of finished runs")
    cells = [
        Cell(row, kind, tuple(sorted(runs, key=lambda run: run.seed)), subset)
        for (row, kind), runs in groups.items()
    ]
    references = cells[0].lines("references.txt")
    for cell in cells:
        for run in cell.runs:
            if read_lines(run.subset(subset) / "references.txt") != references:
                raise UserError(
                    f"{run.folder} and {cells[0].runs[0].folder} were scored on different sentences"
                )
    return cells


def label(cell: Cell, cells: Sequence[Cell]) -> str:
    """A cell's kind, with its row where there are several."""
    return cell.kind if len({c.row for c in cells}) == 1 else f"{cell.row} {cell.kind}"


def summarise(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One object for each row and kind: what table.json holds.

    Scores, their intervals and speeds are means over the seeds; ``bleu_deviation`` is the standard
    deviation of BLEU. PRR is the ratio of mean BLEU (100 for the baseline); its interval and
    ``p_value`` are of all seeds together (``compare_seeds``), and null for the baseline.
    """
    baselines = {cell.row: cell for cell in cells if cell.kind == BASELINE}
    return [_summary(cell, baselines.get(cell.row)) for cell in cells]


def _summary(cell: Cell, baseline: Cell | None) -> dict[str, Any]:
    scores, generations = cell.values("scores.json"), cell.values("generation.json")
    metrics = [read_json(run.metrics) for run in cell.runs]
    bleu = [score["bleu"]["score"] for score in scores]
    tokenised = [
        score["tokenised"] for score in scores if score.get("tokenised")
    ]  # older runs have none
    speeds = [m["tokens_per_second"] for m in metrics if m["tokens_per_second"] is not None]
    compared: Comparison | None = None
    if baseline is not None and baseline is not cell:
        compared = compare_seeds(
            cell.hypotheses(), baseline.hypotheses(), cell.lines("references.txt")
        )
    return {
        "row": cell.row,
        "attention": cell.kind,
        "seeds": [run.seed for run in cell.runs],
        **read_json(cell.runs[0].counts),
        "bleu": _mean(bleu),
        "bleu_confidence": _mean([score["bleu"]["confidence"] for score in scores]),
        "bleu_deviation": round(statistics.stdev(bleu), 4) if len(bleu) > 1 else None,
        "chrf": _mean([score["chrf"]["score"] for score in scores]),
        "bleu_tokenised": _mean([t["score"] for t in tokenised])
        if len(tokenised) == len(scores)
        else None,
        "prr": _prr(bleu, baseline),
        "prr_low": compared and compared.prr_low,
        "prr_high": compared and compared.prr_high,
        "p_value": compared and compared.p_value,
        "signature": scores[0]["bleu"]["signature"],
        "chrf_signature": scores[0]["chrf"]["signature"],
        "tokenised_signature": tokenised[0]["signature"] if tokenised else None,
        "tokens_per_second": _mean(speeds) if speeds else None,
        "sentences_per_second": _mean([g["sentences_per_second"] for g in generations]),
        "sentences": scores[0]["sentences"],
    }


def _prr(bleu: Sequence[float], baseline: Cell | None) -> float | None:
    if baseline is None:
        return None
    best = statistics.mean(score["bleu"]["score"] for score in baseline.values("scores.json"))
    return round(100 * statistics.mean(bleu) / best, 2) if best > 0 else None


def _mean(values: Sequence[float]) -> float:
    return round(statistics.mean(values), 4)


def write_table(cells: Sequence[Cell], output: Path, title: str) -> None:
    """Write table.md, table.json, picture.png and samples.md into ``output``."""
    summaries = summarise(cells)
    plot(
        summaries,
        [(label(cell, cells), read_json(cell.runs[0].metrics)) for cell in cells],
        output,
        title,
    )
    write_text(output / "samples.md", samples(cells, title))
    write_text(output / "table.md", _markdown(cells, summaries, title))
    write_json(output / "table.json", summaries)


def show_table(output: Path, title: str, console: Console) -> None:
    """Print the table of ``output``: on a terminal a column for each kind, which fits; elsewhere the Markdown."""
    if not console.is_terminal:
        print((output / "table.md").read_text(encoding="utf-8"), end="")
        return
    summaries = json.loads((output / "table.json").read_text(encoding="utf-8"))
    table = Table("", title=title, show_header=False)
    for _ in summaries:
        table.add_column(justify="right", overflow="fold")
    columns = _columns(summaries)
    for (heading, *_), *row in zip(
        columns, *(_written(summary, columns) for summary in summaries), strict=True
    ):
        table.add_row(heading, *row)
    console.print(table)
    console.print(f"BLEU: {summaries[0]['signature']}", highlight=False)


def _columns(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """All of them, but for the deviation where no kind has several seeds."""
    alone = all(summary["bleu_deviation"] is None for summary in summaries)
    return [column for column in COLUMNS if not (alone and column[1] == "bleu_deviation")]


def _written(summary: dict[str, Any], columns: Sequence[tuple[str, str, str]]) -> list[str]:
    return [
        "" if summary[name] is None else form.format(summary[name]) for _, name, form in columns
    ]


def _markdown(cells: Sequence[Cell], summaries: Sequence[dict[str, Any]], title: str) -> str:
    columns = _columns(summaries)
    rows = [
        [heading for heading, _, _ in columns],
        *(_written(summary, columns) for summary in summaries),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    lines = [_aligned(row, widths) for row in rows]
    ends = ["-", *":" * (len(widths) - 1)]  # all but the first column are numbers, flush right
    rule = (
        "|"
        + "|".join("-" * (width + 1) + end for width, end in zip(widths, ends, strict=True))
        + "|"
    )
    return "\n".join(
        [f"# {title}", "", lines[0], rule, *lines[1:], "", *_notes(cells, summaries), ""]
    )


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        text.ljust(width) if column == 0 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "| " + " | ".join([first, *others]) + " |"


def _notes(cells: Sequence[Cell], summaries: Sequence[dict[str, Any]]) -> list[str]:
    first, run = summaries[0], cells[0].runs[0]
    versions = ", ".join(f"{name} {version}" for name, version in run.config["versions"].items())
    trained, generated = (
        d["measured"] for d in (read_json(run.metrics), cells[0].values("generation.json")[0])
    )
    return [
        f"- BLEU `{first['signature']}`, chrF `{first['chrf_signature']}`, on {first['sentences']:,} detokenised "
        f"sentences ({cells[0].subset}); ± is half the 95% bootstrap interval.",
        f"- PRR: BLEU in percent of {BASELINE}'s; p: paired bootstrap against {BASELINE}, {RESAMPLES:,} resamples"
        f"{' of sentences and of seeds; sd: over the seeds' if len(first['seeds']) > 1 else ''}.",
        "- Attention parameters: encoder self-, decoder self- and cross-attention. KV bytes/token: key/value cache in "
        "float32 for each generated token of each hypothesis.",
        f"- Training tokens/s: target tokens, median over the log, {trained}. "
        f"Generation sentences/s: fairseq-generate's own clock, {generated}.",
        f"- Seeds: {', '.join(map(str, first['seeds']))}. {versions}.",
    ]


def samples(cells: Sequence[Cell], title: str) -> str:
    """Translations of some sentences, drawn at random and not chosen."""
    sources, references = (cells[0].lines(name) for name in ("sources.txt", "references.txt"))
    outputs = {label(cell, cells): cell.lines("hypotheses.txt") for cell in cells}
    drawn = random.Random(SAMPLES_SEED).sample(range(len(sources)), min(SAMPLES, len(sources)))  # noqa: S311
    lines = [
        f"# {title}: sample translations",
        "",
        f"Drawn at random (seed {SAMPLES_SEED}), not chosen.",
        "",
    ]
    for number in sorted(drawn):
        lines += [
            f"## Line {number + 1}",
            "",
            f"- source: {sources[number]}",
            f"- reference: {references[number]}",
        ]
        lines += [f"- {name}: {output[number] or '(nothing)'}" for name, output in outputs.items()]
        lines.append("")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe table``."""
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folders of finished runs"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="folder for table.md, table.json, picture.png, samples.md",
    )
    parser.add_argument(
        "--subset", default="test", help="the data set that was scored (default: %(default)s)"
    )
    parser.add_argument(
        "--title", default="Kinds of attention", help="heading (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> None:
    """Write the table and print it."""
    write_table(gather(args.runs, args.subset), args.out, args.title)
    show_table(args.out, args.title, Console())
