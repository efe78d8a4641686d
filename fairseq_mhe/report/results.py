"""What finished run folders say: the runs of each cell of a table, and its numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.report.published import prr, published
from fairseq_mhe.report.significance import compare_seeds
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.run import Run, read_run
from fairseq_mhe.runs.scoring import read_lines

#: The kind that the others are compared with.
BASELINE = "mha"


@dataclass(frozen=True)
class Cell:
    """The finished runs of a row and kind, one a seed, and their translations of one data set."""

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

    def bleus(self) -> list[float]:
        """Every seed's BLEU."""
        return [score["bleu"]["score"] for score in self.values("scores.json")]


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Group run folders by row and kind, in the order given.

    Raises:
        UserError: there is no folder, or one is no run, is not finished, or was scored on other
        sentences than the first.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for folder in folders:
        run = read_run(folder)
        for path in (run.metrics, run.counts, run.subset(subset) / "scores.json"):
            if not path.is_file():
                missing = path.relative_to(folder)
                raise UserError(f"{folder} is not finished: it has no {missing}")
        groups.setdefault((run.row, run.kind), []).append(run)
    if not groups:
        raise UserError("no runs: give the folders of finished runs")
    cells = [
        Cell(row, kind, tuple(sorted(runs, key=lambda run: run.seed)), subset)
        for (row, kind), runs in groups.items()
    ]
    first = cells[0]
    references = first.lines("references.txt")
    for cell in cells:
        for run in cell.runs:
            if read_lines(run.subset(subset) / "references.txt") != references:
                raise UserError(
                    f"{run.folder} and {first.runs[0].folder} were scored on different sentences"
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
    bleu = cell.bleus()
    # Older runs have no tokenised BLEU.
    tokenised = [score["tokenised"] for score in scores if score.get("tokenised")]
    speeds = [read_json(run.metrics)["tokens_per_second"] for run in cell.runs]
    known_speeds = [speed for speed in speeds if speed is not None]
    return {
        "row": cell.row,
        "attention": cell.kind,
        "seeds": [run.seed for run in cell.runs],
        **read_json(cell.runs[0].counts),
        "bleu": _mean(bleu),
        "bleu_confidence": _mean([score["bleu"]["confidence"] for score in scores]),
        "bleu_deviation": deviation(bleu),
        "chrf": _mean([score["chrf"]["score"] for score in scores]),
        "bleu_tokenised": _mean([t["score"] for t in tokenised])
        if len(tokenised) == len(scores)
        else None,
        **_compared(cell, baseline),
        "signature": scores[0]["bleu"]["signature"],
        "chrf_signature": scores[0]["chrf"]["signature"],
        "tokenised_signature": tokenised[0]["signature"] if tokenised else None,
        "tokens_per_second": _mean(known_speeds) if known_speeds else None,
        "sentences_per_second": _mean([g["sentences_per_second"] for g in generations]),
        "sentences": scores[0]["sentences"],
    }


def _compared(cell: Cell, baseline: Cell | None) -> dict[str, float | None]:
    """PRR, its interval and the p-value; null where there is nothing to compare with."""
    names = ("prr", "prr_low", "prr_high", "p_value")
    found: dict[str, float | None] = dict.fromkeys(names)
    if baseline is None:
        return found
    best = statistics.mean(baseline.bleus())
    if best > 0:
        found["prr"] = round(prr(statistics.mean(cell.bleus()), best), 2)
    if cell is not baseline:
        references = cell.lines("references.txt")
        compared = compare_seeds(cell.hypotheses(), baseline.hypotheses(), references)
        for name in names[1:]:
            found[name] = getattr(compared, name)
    return found


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of several values."""
    return round(statistics.stdev(values), 4) if len(values) > 1 else None


def _mean(values: Sequence[float]) -> float:
    return round(statistics.mean(values), 4)


def sizes_and_paper(cell: Cell) -> dict[str, Any]:
    """The row's sizes, what was trained, the paper's numbers, and COMET where every seed has it."""
    row, training = {**ROWS, **SMALL_ROWS}[cell.row], cell.runs[0].training
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
