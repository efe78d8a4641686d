"""What finished run folders say: the runs of each cell of a table, and its numbers."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.architectures import MODEL_NAME, sizes
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.report.published import published
from fairseq_mhe.report.significance import compare, retained
from fairseq_mhe.report.table import deviation
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.scoring import read_translations, tokeniser_in

#: The kind that the others are compared with.
BASELINE = "mha"


@dataclass(frozen=True)
class Cell:
    """The finished runs of a row with a kind of attention, one a seed, scored on a ``subset``."""

    row: str
    kind: str
    runs: tuple[Job, ...]
    subset: str

    def values(self, name: str) -> list[dict[str, Any]]:
        """The "scores", "generation" or "comet" of the runs that have them."""
        paths = [run.subset(self.subset) / f"{name}.json" for run in self.runs]
        return [read_json(path) for path in paths if path.exists()]

    def lines(self, name: str, index: int = 0) -> list[str]:
        """The "sources", "references" or "hypotheses" of one of the runs."""
        return read_translations(self.runs[index].subset(self.subset))[name]

    def hypotheses(self) -> list[list[str]]:
        """Every seed's translations."""
        return [self.lines("hypotheses", index) for index in range(len(self.runs))]

    def bleus(self) -> list[float]:
        """Every seed's BLEU."""
        return [score["bleu"]["score"] for score in self.values("scores")]


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Group run folders by row and kind, in the order given.

    Raises:
        UserError: there is no folder; a folder is no run or is not finished; two runs of one model
            differ by more than their seed; or runs were not scored alike.
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
            differing = ["nothing"] if one.seed == other.seed else differences(one, other)
            if differing:
                raise UserError(
                    f"{one.folder} and {other.folder} are both {row} {kind} and differ by "
                    f"{', '.join(differing)}, where seeds of one model belong together: leave one "
                    "out"
                )
        cells.append(Cell(row, kind, tuple(runs), subset))
    check_scored_alike(cells)
    return cells


def training_of(run: Job) -> dict[str, Any]:
    """What decides a run's model, but for its attention and seed: fairseq-train's options, the
    checksum of its data, and whether it starts from a checkpoint.
    """
    options = run.settings["options"]
    own = ("seed", "attention", *PLACES.values())
    start = "a checkpoint" if "start" in run.settings else "scratch"
    facts = {"data": run.settings["data"]["fingerprint"][:8], "start": start}
    return {**{name: options[name] for name in options if name not in own}, **facts}


def differences(one: Job, other: Job) -> list[str]:
    """The names of what differs between the trainings of two runs."""
    first, second = training_of(one), training_of(other)
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def check_scored_alike(cells: Sequence[Cell]) -> None:
    """Refuse runs that were scored on different sentences, or by different means.

    Raises:
        UserError: two runs were; the line names them.
    """
    usual: dict[str, tuple[Any, Path]] = {}
    for cell in cells:
        for index, run in enumerate(cell.runs):
            one = Cell(cell.row, cell.kind, (run,), cell.subset)
            scored: dict[str, Any] = {"sentences": cell.lines("references", index)}
            for score in one.values("scores"):
                scored["BLEU tokenizer"] = tokeniser_in(score["bleu"]["signature"])
            for score in one.values("comet"):
                scored["COMET model"] = score["model"]
            for name, value in scored.items():
                first, folder = usual.setdefault(name, (value, run.folder))
                if value != first:
                    raise UserError(
                        f"{run.folder} and {folder} were scored with different {name}: score them "
                        "alike (fairseq-mhe evaluate)"
                    )


def label(cell: Cell, cells: Sequence[Cell]) -> str:
    """A cell's kind of attention, with its row where there are several."""
    return cell.kind if len({c.row for c in cells}) == 1 else f"{cell.row} {cell.kind}"


def lowest_loss(metrics: Mapping[str, Any]) -> float:
    """The lowest validation loss that a training had, in bits per target token."""
    return min(loss for _, loss in metrics["valid"])


def summarise(cells: Sequence[Cell], paper: bool = False) -> list[dict[str, Any]]:
    """One object for each cell: what table.json holds.

    Scores, their intervals, speeds and ``valid_loss``, the lowest validation loss of a training in
    bits per target token, are means over the seeds; ``bleu_deviation`` is the standard deviation of
    BLEU. PRR is the ratio of mean BLEU (100 for the baseline); its interval and ``p_value`` are of
    all seeds together (`compare`), and null for the baseline. With ``paper`` come the row's sizes,
    its training, and the paper's numbers.
    """
    baselines = {cell.row: cell for cell in cells if cell.kind == BASELINE}
    summaries = []
    for cell in cells:
        more = _sizes_and_paper(cell) if paper else {}
        summaries.append({**more, **_summary(cell, baselines.get(cell.row))})
    return summaries


def _summary(cell: Cell, baseline: Cell | None) -> dict[str, Any]:
    scores, generations = cell.values("scores"), cell.values("generation")
    metrics = [read_json(run.metrics) for run in cell.runs]
    losses = [lowest_loss(of_run) if of_run["valid"] else None for of_run in metrics]
    speeds = [of_run["tokens_per_second"] for of_run in metrics]
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
    nothing = dict.fromkeys(("prr", "prr_low", "prr_high", "p_value"))
    if baseline is None:
        return nothing
    prr = retained(statistics.mean(cell.bleus()), statistics.mean(baseline.bleus()))
    if cell is baseline:
        return {**nothing, "prr": prr}
    tokeniser = tokeniser_in(cell.values("scores")[0]["bleu"]["signature"])
    systems = cell.hypotheses(), baseline.hypotheses()
    return {**asdict(compare(*systems, cell.lines("references"), tokeniser)), "prr": prr}


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean over seeds; None where a seed has no value."""
    known = [value for value in values if value is not None]
    return round(statistics.mean(known), 4) if known and len(known) == len(values) else None


def _mean_score(scores: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return _mean([score[name]["score"] if score.get(name) else None for score in scores])


def _sizes_and_paper(cell: Cell) -> dict[str, Any]:
    """The row's sizes, its training, the paper's numbers, and COMET where every seed has it."""
    training = cell.runs[0].training
    options, row = (
        training.options,
        sizes(training.options["arch"].removeprefix(f"{MODEL_NAME}_")),
    )
    layers = [int(options.get(f"{side}_layers", row.layers)) for side in ("encoder", "decoder")]
    width = int(options.get("encoder_embed_dim", row.embed_dim))
    heads = int(options.get("encoder_attention_heads", row.heads))
    printed = published(cell.row, cell.kind)
    comets = [score["score"] for score in cell.values("comet")]
    return {
        "layers": sum(layers),
        "width": width,
        "heads": heads,
        "head_width": width // heads,
        "dropout": training.dropout,
        "updates": training.updates,
        "batch_tokens": training.batch_tokens,
        "paper_parameters": printed and printed.parameters,
        "paper_bleu": printed and printed.bleu,
        "paper_prr": printed and printed.prr,
        "comet": _mean(comets) if len(comets) == len(cell.runs) else None,
    }
