"""What finished run folders say: the runs of each cell of a table, and its numbers."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.options import MODEL_NAME
from fairseq_mhe.report.published import published
from fairseq_mhe.report.significance import compare_seeds, retained
from fairseq_mhe.report.table import deviation
from fairseq_mhe.runs import comet
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.recipes import NAMES as RECIPES
from fairseq_mhe.runs.scoring import read_translations, tokeniser_in

#: The kind that the others are compared with.
BASELINE = "mha"


@dataclass(frozen=True)
class Cell:
    """The finished runs of a row with a kind of attention, one for each seed.

    ``subset``: the data set whose translations are compared.
    """

    row: str
    kind: str
    runs: tuple[Job, ...]
    subset: str

    def values(self, name: str) -> list[dict[str, Any]]:
        """Every seed's "scores" or "generation"."""
        return [read_json(run.subset(self.subset) / f"{name}.json") for run in self.runs]

    def lines(self, name: str, index: int = 0) -> list[str]:
        """The "sources", "references" or "hypotheses" of one of the runs."""
        return read_translations(self.runs[index].subset(self.subset))[name]

    def hypotheses(self) -> list[list[str]]:
        """Every seed's translations."""
        return [self.lines("hypotheses", index) for index in range(len(self.runs))]

    def bleus(self) -> list[float]:
        """Every seed's BLEU."""
        return [score["bleu"]["score"] for score in self.values("scores")]

    def tokenisers(self) -> list[str]:
        """The tokeniser of every seed's BLEU."""
        return [tokeniser_in(score["bleu"]["signature"]) for score in self.values("scores")]

    def comet(self) -> list[tuple[Path, dict[str, Any]]]:
        """The files of COMET and their content, where there are some."""
        paths = [run.subset(self.subset) / comet.FILE for run in self.runs]
        return [(path, read_json(path)) for path in paths if path.exists()]


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Group run folders by row and kind, in the order given.

    Raises:
        UserError: there is no folder; a folder is no run or is not finished; two runs of one model
            differ by more than their seed; or runs were scored on different sentences, by different
            tokenisers or by different COMET models.
    """
    groups: dict[tuple[str, str], list[Job]] = {}
    for folder in folders:
        run = read_job(folder)
        for path in (run.metrics, run.counts, run.subset(subset) / "scores.json"):
            if not path.is_file():
                raise run.unfinished(str(path.relative_to(folder)))
        groups.setdefault((run.row, run.kind), []).append(run)
    if not groups:
        raise UserError("no runs: give the folders of finished runs")
    cells = []
    for (row, kind), runs in groups.items():
        runs.sort(key=lambda run: run.seed)
        for one, other in pairwise(runs):
            _check_alike(one, other)
        cells.append(Cell(row, kind, tuple(runs), subset))
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
        for index, (run, tokeniser) in enumerate(zip(cell.runs, cell.tokenisers(), strict=True)):
            if cell.lines("references", index) != references:
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
    places = {score["model"]: path for cell in cells for path, score in reversed(cell.comet())}
    if len(places) > 1:
        (one, at), (other, there), *_ = places.items()
        raise UserError(
            f"{at} is by COMET's {one}, {there} by {other}: score them alike (evaluate --comet)"
        )
    return next(iter(places), None)


def _check_alike(one: Job, other: Job) -> None:
    """See that two runs of one model differ by their seed, and by nothing else."""

    def made_by(run: Job) -> dict[str, Any]:
        settings = {**run.settings, **run.settings["options"], **run.settings["data"]}
        # Each seed may have a start of its own, but not one a start and another none.
        settings["start"] = "start" in run.settings
        return {
            name: value
            for name, value in settings.items()
            if name not in ("seed", "options", "data")
        }

    first, second = made_by(one), made_by(other)
    differing = [name for name in first | second if first.get(name) != second.get(name)]
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


def lowest_loss(metrics: Mapping[str, Any]) -> float:
    """The lowest validation loss that a training had, in bits per target token."""
    return min(loss for _, loss in metrics["valid"])


def summarise(cells: Sequence[Cell], paper: bool = False) -> list[dict[str, Any]]:
    """One object for each cell: what table.json holds.

    Scores, their intervals, speeds and ``valid_loss``, the lowest validation loss of a training in
    bits per target token, are means over the seeds; ``bleu_deviation`` is the standard deviation of
    BLEU. PRR is the ratio of mean BLEU (100 for the baseline); its interval and ``p_value`` are of
    all seeds together (``compare_seeds``), and null for the baseline. With ``paper`` come the row's
    sizes, its training, and the paper's numbers.
    """
    compared_with = baselines(cells)
    summaries = []
    for cell in cells:
        more = _sizes_and_paper(cell) if paper else {}
        summaries.append({**more, **_summary(cell, compared_with.get(cell.row))})
    return summaries


def _summary(cell: Cell, baseline: Cell | None) -> dict[str, Any]:
    scores, generations = cell.values("scores"), cell.values("generation")
    metrics = [read_json(run.metrics) for run in cell.runs]
    speeds = [of_run["tokens_per_second"] for of_run in metrics]
    losses = [lowest_loss(of_run) if of_run["valid"] else None for of_run in metrics]
    tokenised = [score["tokenised"] for score in scores if score.get("tokenised")]
    return {
        "row": cell.row,
        "attention": cell.kind,
        "seeds": [run.seed for run in cell.runs],
        **read_json(cell.runs[0].counts),
        "bleu": _mean(cell.bleus()),
        "bleu_confidence": _mean([score["bleu"]["confidence"] for score in scores]),
        "bleu_deviation": deviation(cell.bleus()),
        "chrf": _mean([score["chrf"]["score"] for score in scores]),
        "bleu_tokenised": _mean_score(scores, "tokenised"),
        "bleu4": _mean_score(scores, "given_tokens"),
        **_compared(cell, baseline),
        "signature": scores[0]["bleu"]["signature"],
        "chrf_signature": scores[0]["chrf"]["signature"],
        "tokenised_signature": tokenised[0]["signature"] if tokenised else None,
        "valid_loss": _mean(losses),
        "precision": cell.runs[0].training.precision,
        "tokens_per_second": _mean([speed for speed in speeds if speed is not None]),
        "sentences_per_second": _mean([each["sentences_per_second"] for each in generations]),
        "sentences": scores[0]["sentences"],
    }


def _compared(cell: Cell, baseline: Cell | None) -> dict[str, float | None]:
    """PRR, its interval and the p-value; null where there is nothing to compare with."""
    names = ("prr", "prr_low", "prr_high", "p_value")
    if baseline is None:
        return dict.fromkeys(names)
    mean, best = (statistics.mean(each.bleus()) for each in (cell, baseline))
    if cell is baseline:
        return {**dict.fromkeys(names), "prr": retained(mean, best)}
    systems = cell.hypotheses(), baseline.hypotheses()
    compared = compare_seeds(*systems, cell.lines("references"), cell.tokenisers()[0])
    return {**asdict(compared), "prr": retained(mean, best)}


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean over seeds; None where a seed has no value."""
    known = [value for value in values if value is not None]
    return round(statistics.mean(known), 4) if known and len(known) == len(values) else None


def _mean_score(scores: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return _mean([score[name]["score"] if score.get(name) else None for score in scores])


def _sizes(name: str, options: Mapping[str, Any]) -> tuple[int, int, int]:
    """Layers of both sides, width and heads of a row, or of a recipe of the user's own."""
    if name in RECIPES:
        row = sizes(name)
        return 2 * row.layers, row.embed_dim, row.heads
    row = sizes(str(options["arch"]).removeprefix(f"{MODEL_NAME}_"))
    layers = [int(options.get(f"{side}_layers", row.layers)) for side in ("encoder", "decoder")]
    width = options.get("encoder_embed_dim", row.embed_dim)
    return sum(layers), int(width), int(options.get("encoder_attention_heads", row.heads))


def _sizes_and_paper(cell: Cell) -> dict[str, Any]:
    """The row's sizes, its training, the paper's numbers, and COMET where every seed has it."""
    training = cell.runs[0].training
    layers, width, heads = _sizes(cell.row, training.options)
    printed = published(cell.row, cell.kind)
    scores = [score["score"] for _, score in cell.comet()]
    return {
        "layers": layers,
        "width": width,
        "heads": heads,
        "head_width": width // heads,
        "dropout": training.dropout,
        "updates": training.updates,
        "batch_tokens": training.batch_tokens,
        "paper_parameters": printed and printed.parameters,
        "paper_bleu": printed and printed.bleu,
        "paper_prr": printed and printed.prr,
        "comet": _mean(scores) if len(scores) == len(cell.runs) else None,
    }
