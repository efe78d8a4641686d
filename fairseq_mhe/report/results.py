"""What finished run folders say: the runs of each cell of a table, and its numbers."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.report.published import published
from fairseq_mhe.report.significance import compare_seeds, retained
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.precision import told
from fairseq_mhe.runs.run import Run, read_run
from fairseq_mhe.runs.scoring import read_translations, tokeniser_in

#: The kind that the others are compared with.
BASELINE = "mha"


@dataclass(frozen=True)
class Cell:
    """The finished runs of a model, one a seed, and their translations of one data set.

    A model is a row with a kind of attention.
    """

    row: str
    kind: str
    runs: tuple[Run, ...]
    subset: str

    def values(self, name: str) -> list[dict[str, Any]]:
        """Every seed's "scores" or "generation"."""
        return [read_json(run.subset(self.subset) / f"{name}.json") for run in self.runs]

    def lines(self, name: str, seed: int = 0) -> list[str]:
        """The "sources", "references" or "hypotheses" of the so manyth seed."""
        return read_translations(self.runs[seed].subset(self.subset))[name]

    def hypotheses(self) -> list[list[str]]:
        """Every seed's translations."""
        return [self.lines("hypotheses", seed) for seed in range(len(self.runs))]

    def bleus(self) -> list[float]:
        """Every seed's BLEU."""
        return [score["bleu"]["score"] for score in self.values("scores")]

    def tokenisers(self) -> list[str]:
        """What every seed's BLEU is counted of."""
        return [tokeniser_in(score["bleu"]["signature"]) for score in self.values("scores")]


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Group run folders by row and kind, in the order given.

    Raises:
        UserError: there is no folder, or one is no run, is not finished, or was scored on other
        sentences than the first or by another tokeniser; or two of one model differ by more than
        their seed.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for folder in folders:
        run = read_run(folder)
        for path in (run.metrics, run.counts, run.subset(subset) / "scores.json"):
            if not path.is_file():
                raise run.unfinished(str(path.relative_to(folder)))
        groups.setdefault((run.row, run.kind), []).append(run)
    if not groups:
        raise UserError("no runs: give the folders of finished runs")
    cells = [
        Cell(row, kind, tuple(sorted(runs, key=lambda run: run.seed)), subset)
        for (row, kind), runs in groups.items()
    ]
    for cell in cells:
        for one, other in pairwise(cell.runs):
            _check_alike(one, other)
    check_scored_alike(cells)
    comet_model(cells)
    return cells


def check_scored_alike(cells: Sequence[Cell]) -> None:
    """See that all runs were scored on the same sentences and by one tokeniser.

    Raises:
        UserError: they were not.
    """
    first, references = cells[0].runs[0].folder, cells[0].lines("references")
    usual = cells[0].tokenisers()[0]
    for cell in cells:
        for seed, (run, tokeniser) in enumerate(zip(cell.runs, cell.tokenisers(), strict=True)):
            if cell.lines("references", seed) != references:
                raise UserError(f"{run.folder} and {first} were scored on different sentences")
            if tokeniser != usual:
                raise UserError(
                    f"{run.folder} was scored with the tokeniser {tokeniser}, {first} with "
                    f"{usual}: score them alike (evaluate --bleu-tokenizer)"
                )


def comet_model(cells: Sequence[Cell]) -> str | None:
    """The COMET model that scored the runs, if one did.

    Raises:
        UserError: several did.
    """
    found: dict[str, Path] = {}
    for path in (run.subset(cell.subset) / comet.FILE for cell in cells for run in cell.runs):
        if path.exists():
            found.setdefault(str(read_json(path)["model"]), path)
    if len(found) > 1:
        (one, at), (other, there), *_ = found.items()
        raise UserError(
            f"{at} is by COMET's {one}, {there} by {other}: score them alike (evaluate --comet)"
        )
    return next(iter(found), None)


def _check_alike(one: Run, other: Run) -> None:
    """See that two runs differ by their seed, and by nothing else that makes a model better."""

    def made_by(run: Run) -> dict[str, Any]:
        settings = {**run.settings, **vars(run.training), **run.settings["data"]}
        # Each seed may have a start of its own, but not one a start and another none.
        settings["start"] = "start" in run.settings
        may_differ = ("seed", "training", "data", "precision")
        return {name: value for name, value in settings.items() if name not in may_differ}

    both = made_by(one), made_by(other)
    differing = [n for n in both[0] | both[1] if both[0].get(n) != both[1].get(n)]
    if one.seed == other.seed:
        differing = ["nothing"]
    if differing:
        raise UserError(
            f"{one.folder} and {other.folder} are both {one.row} {one.kind} and differ by "
            f"{', '.join(differing)}, where seeds of one model belong together: leave one out"
        )


def label(cell: Cell, cells: Sequence[Cell]) -> str:
    """A cell's kind of attention, with its row where there are several."""
    return cell.kind if len({c.row for c in cells}) == 1 else f"{cell.row} {cell.kind}"


def baselines(cells: Sequence[Cell]) -> dict[str, Cell]:
    """Row -> the cell of `BASELINE`, which its other cells are compared with."""
    return {cell.row: cell for cell in cells if cell.kind == BASELINE}


def summarise(cells: Sequence[Cell], paper: bool = False) -> list[dict[str, Any]]:
    """One object for each cell: what table.json holds.

    Scores, their intervals, speeds and ``valid_loss``, the lowest that a training had on valid in
    bits per target token, are means over the seeds; ``bleu_deviation`` is the standard deviation of
    BLEU. PRR is the ratio of mean BLEU (100 for the baseline); its interval and
    ``p_value`` are of all seeds together (``compare_seeds``), and null for the baseline. With
    ``paper`` come the row's sizes, what was trained, and the paper's numbers.
    """
    compared_with = baselines(cells)
    found = []
    for cell in cells:
        more = _sizes_and_paper(cell) if paper else {}
        found.append({**more, **_summary(cell, compared_with.get(cell.row))})
    return found


def lowest_loss(metrics: Mapping[str, Any]) -> float:
    """The lowest validation loss that a training had, in bits per target token."""
    return min(loss for _, loss in metrics["valid"])


def _summary(cell: Cell, baseline: Cell | None) -> dict[str, Any]:
    scores, generations = cell.values("scores"), cell.values("generation")
    tokenised = [score["tokenised"] for score in scores if score.get("tokenised")]
    given = [score["given_tokens"] for score in scores if score.get("given_tokens")]
    every_has_it = len(tokenised) == len(scores)
    metrics = [read_json(run.metrics) for run in cell.runs]
    speeds = [found["tokens_per_second"] for found in metrics]
    known_speeds = [speed for speed in speeds if speed is not None]
    losses = [lowest_loss(found) for found in metrics if found["valid"]]
    return {
        "row": cell.row,
        "attention": cell.kind,
        "seeds": [run.seed for run in cell.runs],
        **read_json(cell.runs[0].counts),
        "bleu": _mean(cell.bleus()),
        "bleu_confidence": _mean([score["bleu"]["confidence"] for score in scores]),
        "bleu_deviation": deviation(cell.bleus()),
        "chrf": _mean([score["chrf"]["score"] for score in scores]),
        "bleu_tokenised": _mean([t["score"] for t in tokenised]) if every_has_it else None,
        "bleu4": _mean([g["score"] for g in given]) if len(given) == len(scores) else None,
        **_compared(cell, baseline),
        "signature": scores[0]["bleu"]["signature"],
        "chrf_signature": scores[0]["chrf"]["signature"],
        "tokenised_signature": tokenised[0]["signature"] if tokenised else None,
        "valid_loss": _mean(losses) if len(losses) == len(metrics) else None,
        "precision": told(cell.runs),
        "tokens_per_second": _mean(known_speeds) if known_speeds else None,
        "sentences_per_second": _mean([g["sentences_per_second"] for g in generations]),
        "sentences": scores[0]["sentences"],
    }


def _compared(cell: Cell, baseline: Cell | None) -> dict[str, float | None]:
    """PRR, its interval and the p-value; null where there is nothing to compare with."""
    found: dict[str, float | None] = dict.fromkeys(("prr", "prr_low", "prr_high", "p_value"))
    if baseline is None:
        return found
    if cell is not baseline:
        systems = cell.hypotheses(), baseline.hypotheses()
        found = asdict(compare_seeds(*systems, cell.lines("references"), cell.tokenisers()[0]))
    best = statistics.mean(baseline.bleus())
    found["prr"] = retained(statistics.mean(cell.bleus()), best)
    return found


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of several values, all of them finite."""
    several = len(values) > 1 and all(map(math.isfinite, values))
    return round(statistics.stdev(values), 4) if several else None


def _mean(values: Sequence[float]) -> float:
    return round(statistics.mean(values), 4)


def _sizes_and_paper(cell: Cell) -> dict[str, Any]:
    """The row's sizes, what was trained, the paper's numbers, and COMET where every seed has it."""
    row, training = sizes(cell.row), cell.runs[0].training
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
        "comet": _mean(scores) if len(scores) == len(found) else None,
    }
