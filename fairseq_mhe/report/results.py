"""Finished runs as the cells of a table, and what table.json holds of each cell."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.models.architectures import MODEL_NAME, sizes
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.report.published import published
from fairseq_mhe.report.significance import Comparison, compare, retained
from fairseq_mhe.report.table import deviation
from fairseq_mhe.runs.job import Job, read_job
from fairseq_mhe.runs.scoring import read_translations, tokeniser_in

#: The kind that the others are compared with.
BASELINE = "mha"


@dataclass(frozen=True)
class Result:
    """A run and what it reached on a ``subset``."""

    run: Job
    subset: str
    counts: dict[str, Any]
    metrics: dict[str, Any]
    scores: dict[str, Any]
    generation: dict[str, Any]
    texts: dict[str, list[str]]
    values: dict[str, float | None]  # that have a mean over seeds, by table.json's names

    @property
    def tokeniser(self) -> str:
        return tokeniser_in(self.scores["bleu"]["signature"])


def read_result(run: Job, subset: str) -> Result:
    folder = run.subset(subset)
    metrics = read_json(run.metrics) if run.metrics.exists() else {}  # or it is converted
    scores = read_json(folder / "scores.json")
    generation = read_json(folder / "generation.json")
    losses = [loss for _, loss in metrics.get("valid", ())]
    values = {
        "bleu": scores["bleu"]["score"],
        "bleu_confidence": scores["bleu"]["confidence"],
        "chrf": scores["chrf"]["score"],
        "bleu_tokenised": (scores.get("tokenised") or {}).get("score"),
        "bleu4": (scores.get("given_tokens") or {}).get("score"),
        # the lowest of a training, in bits per target token
        "valid_loss": min(losses, default=None),
        "tokens_per_second": metrics.get("tokens_per_second"),
        "sentences_per_second": generation["sentences_per_second"],
    }
    counts = read_json(run.counts)
    texts = read_translations(folder)
    return Result(run, subset, counts, metrics, scores, generation, texts, values)


@dataclass(frozen=True)
class Cell:
    """A row with a kind of attention: the results of its seeds."""

    row: str
    kind: str
    results: tuple[Result, ...]

    def of_seeds(self, name: str) -> list[Any]:
        """A value of every seed."""
        return [result.values[name] for result in self.results]


def mean(values: Sequence[Any]) -> float | None:
    """The mean over seeds; None if a seed has no value, or there is none."""
    if not values or None in values:
        return None
    return round(statistics.mean(values), 4)


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Run folders by row and kind, in the order given; or UserError where they do not compare."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for folder in folders:
        run = read_job(folder)
        for path in (run.metrics, run.counts):
            if not path.is_file():
                raise run.unfinished(path.name)
        if not (run.subset(subset) / "scores.json").is_file():
            advice = f"fairseq-mhe evaluate {folder} --subset {subset}"
            raise UserError(f"{folder} is not scored on {subset}: give {advice}")
        of_cell = groups.setdefault((run.row, run.kind), [])
        of_cell.append(read_result(run, subset))
    cells = []
    for (row, kind), results in groups.items():
        results.sort(key=lambda result: result.run.seed)
        for one, other in pairwise(result.run for result in results):
            differing = ", ".join(differences(one, other))
            if differing or one.seed == other.seed:
                both = f"{one.folder} and {other.folder} are both {row} {kind}"
                both += f" and differ by {differing or 'nothing'}"
                raise UserError(
                    f"{both}, where seeds of one model belong together: leave one out"
                )
        cells.append(Cell(row, kind, tuple(results)))
    check_scored_alike(cells)
    return cells


def _training_of(run: Job) -> dict[str, Any]:
    """What decides a run's model, but for its attention and seed."""
    training = dict(run.settings["options"])
    for name in ("seed", "attention", *PLACES.values()):
        training.pop(name, None)
    training["data"] = run.settings["data"]["fingerprint"][:8]
    training["start"] = "a checkpoint" if "start" in run.settings else "scratch"
    return training


def differences(one: Job, other: Job) -> dict[str, Any]:
    """Names of what differs between the trainings of two runs, and the values of the other."""
    first = _training_of(one)
    second = _training_of(other)
    differing = [name for name in first | second if first.get(name) != second.get(name)]
    return {name: second.get(name) for name in differing}


def check_scored_alike(cells: Sequence[Cell]) -> None:
    """Refuse runs that were scored on different sentences, or by different means."""
    first, *others = (result for cell in cells for result in cell.results)
    for result in others:
        both = f"{result.run.folder} and {first.run.folder} were scored with different"
        if result.texts["references"] != first.texts["references"]:
            raise UserError(f"{both} sentences: score them alike (fairseq-mhe evaluate)")
        if result.tokeniser != first.tokeniser:
            raise UserError(
                f"{both} BLEU tokenizer: score them alike (fairseq-mhe evaluate)"
            )


def label(cell: Cell, cells: Sequence[Cell]) -> str:
    """A cell's kind of attention, with its row where there are several."""
    return cell.kind if len({c.row for c in cells}) == 1 else f"{cell.row} {cell.kind}"


def summarise(cells: Sequence[Cell], paper: bool = False) -> list[dict[str, Any]]:
    """What table.json holds of each cell; with ``paper`` its sizes and the paper's numbers, too."""
    baselines = {cell.row: cell for cell in cells if cell.kind == BASELINE}
    return [_summary(cell, baselines.get(cell.row), paper) for cell in cells]


def _summary(cell: Cell, baseline: Cell | None, paper: bool) -> dict[str, Any]:
    first = cell.results[0]
    return {
        **(_sizes_and_paper(cell) if paper else {}),
        "row": cell.row,
        "attention": cell.kind,
        "seeds": [result.run.seed for result in cell.results],
        **first.counts,
        **{name: mean(cell.of_seeds(name)) for name in first.values},
        "bleu_deviation": deviation(cell.of_seeds("bleu")),
        **_compared(cell, baseline),
        "signature": first.scores["bleu"]["signature"],
        "chrf_signature": first.scores["chrf"]["signature"],
        "tokenised_signature": (first.scores.get("tokenised") or {}).get("signature"),
        "precision": first.run.training.precision,
        "sentences": first.scores["sentences"],
    }


def _compared(cell: Cell, baseline: Cell | None) -> dict[str, float | None]:
    """PRR is the ratio of mean BLEU; its interval and the p-value are of all seeds (`compare`)."""
    comparison = asdict(Comparison())
    first = cell.results[0]
    if baseline is None:
        return comparison
    if cell is not baseline:
        ours = [result.texts["hypotheses"] for result in cell.results]
        theirs = [result.texts["hypotheses"] for result in baseline.results]
        references = first.texts["references"]
        comparison = asdict(compare(ours, theirs, references, first.tokeniser))
    means = (statistics.mean(each.of_seeds("bleu")) for each in (cell, baseline))
    return {**comparison, "prr": retained(*means)}


def _sizes_and_paper(cell: Cell) -> dict[str, Any]:
    training = cell.results[0].run.training
    size = training.options["arch"].removeprefix(MODEL_NAME).removeprefix("_")
    options = {**sizes(size or "base").options(), **training.options}
    width = options["encoder_embed_dim"]
    heads = options["encoder_attention_heads"]
    return {
        "layers": options["encoder_layers"] + options["decoder_layers"],
        "width": width,
        "heads": heads,
        "head_width": options.get("attention_head_dim") or width // heads,
        "dropout": float(options["dropout"]),
        "updates": training.updates,
        "batch_tokens": training.batch_tokens,
        **published(cell.row, cell.kind),
    }
