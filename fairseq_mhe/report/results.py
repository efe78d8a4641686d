"""Group finished runs into the cells of a table, and summarise each cell for table.json."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, read_json
from fairseq_mhe.models.families import TRANSLATION
from fairseq_mhe.report.published import published
from fairseq_mhe.report.significance import (
    MIN_BASELINE_BLEU,
    Comparison,
    Sample,
    compare_samples,
    sample,
)
from fairseq_mhe.report.table import deviation
from fairseq_mhe.runs.job import Job, differing, read_job
from fairseq_mhe.runs.scoring import read_scores, read_translations, tokeniser_in

#: The kind that all other kinds are compared with.
BASELINE = "mha"


@dataclass(frozen=True)
class Result:
    """A finished run with its counts, training metrics, and translations of one ``subset``."""

    run: Job
    subset: str
    counts: Json
    metrics: Json
    scores: Json
    generation: Json
    texts: dict[str, list[str]]
    values: dict[str, float | None]  # name in table.json -> value to average over seeds

    @property
    def tokeniser(self) -> str:
        return tokeniser_in(self.scores["bleu"]["signature"])


def read_result(run: Job, subset: str) -> Result:
    """Read the results of a finished run, with its scores on a data set."""
    folder = run.folder / subset
    # A model that a study converted and did not train has no metrics.
    metrics = read_json(run.metrics) if run.metrics.exists() else {}
    scores = read_scores(folder)
    generation = read_json(folder / "generation.json")
    losses = [loss for _, loss in metrics.get("valid", ())]
    values = {
        "bleu": scores["bleu"]["score"],
        "chrf": scores["chrf"]["score"],
        "bleu_tokenised": (scores.get("tokenised") or {}).get("score"),
        "bleu4": (scores.get("given_tokens") or {}).get("score"),
        "valid_loss": min(losses, default=None),  # in bits per target token
        "tokens_per_second": metrics.get("tokens_per_second"),
        "sentences_per_second": generation["sentences_per_second"],
    }
    counts, texts = read_json(run.counts), read_translations(folder)
    return Result(run, subset, counts, metrics, scores, generation, texts, values)


@dataclass(frozen=True)
class Cell:
    """One row with one kind of attention: a result for each seed."""

    row: str
    kind: str
    results: tuple[Result, ...]

    def of_seeds(self, name: str) -> list[Any]:
        """Return the value ``name`` of each seed."""
        return [result.values[name] for result in self.results]

    def sample(self) -> Sample:
        """Return the BLEU of all seeds, on all sentences and resampled."""
        first = self.results[0]
        systems = [result.texts["hypotheses"] for result in self.results]
        return sample(systems, first.texts["references"], first.tokeniser)


def mean(values: Sequence[Any]) -> float | None:
    """Return the mean over seeds; None without seeds or if a seed has no value."""
    if not values or None in values:
        return None
    return round(statistics.mean(values), 4)


def gather(folders: Iterable[Path], subset: str = "test") -> list[Cell]:
    """Group run folders into cells, in the order given; raises UserError if they do not compare."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for folder in folders:
        run = read_job(folder)
        for path in (run.metrics, run.counts):
            if not path.is_file():
                raise run.unfinished(path.name)
        groups.setdefault((run.row, run.kind), []).append(read_result(run, subset))
    cells = []
    for (row, kind), results in groups.items():
        results.sort(key=lambda result: result.run.seed)
        check_seeds(results)
        cells.append(Cell(row, kind, tuple(results)))
    check_scored_alike(cells)
    return cells


def check_seeds(results: Sequence[Result]) -> None:
    """Raise UserError if the runs of a cell, in the order of their seeds, differ by more."""
    for one, other in pairwise(result.run for result in results):
        names = ", ".join(differences(one, other))
        if names or one.seed == other.seed:
            both = f"{one.folder} and {other.folder} are both {one.row} {one.kind}"
            problem = f"differ by {names}" if names else "have the same seed"
            raise UserError(f"{both} but {problem}: leave one out")


def _settings_of(run: Job) -> dict[str, Any]:
    """Return the settings on which a run's scores depend, but its kind of attention and seed."""
    settings = run.training.recipe_options
    settings["data"] = run.settings["data"]["fingerprint"][:8]
    settings["start"] = "a checkpoint" if "start" in run.settings else "scratch"
    for name, value in run.config["decoding"].items():
        settings[f"generation.{name}"] = value
    return settings


def differences(one: Job, other: Job) -> dict[str, Any]:
    """Return the settings in which two runs differ, with the values of ``other``."""
    return differing(_settings_of(one), _settings_of(other))


def check_scored_alike(cells: Sequence[Cell]) -> None:
    """Raise UserError if runs were scored on different sentences or with different tokenisers."""
    first, *others = (result for cell in cells for result in cell.results)
    for result in others:
        both = f"{result.run.folder} and {first.run.folder} were scored"
        if result.texts["references"] != first.texts["references"]:
            raise UserError(f"{both} on different sentences: leave one out")
        if result.tokeniser != first.tokeniser:
            advice = "score both with the same --bleu-tokenizer (fairseq-mhe evaluate)"
            raise UserError(f"{both} with different BLEU tokenizers: {advice}")


def precisions(jobs: Sequence[Job]) -> str:
    """Return the precision in which all jobs were trained, or which jobs in which precision."""
    names_of: dict[str, list[str]] = {}
    for job in jobs:
        names_of.setdefault(job.training.precision, []).append(job.name)
    if len(names_of) == 1:
        return next(iter(names_of))
    parts = [f"{precision} ({', '.join(names)})" for precision, names in names_of.items()]
    return " and ".join(parts)


def label(cell: Cell, cells: Sequence[Cell]) -> str:
    """Return a cell's kind of attention, preceded by its row if ``cells`` have several rows."""
    rows = {other.row for other in cells}
    return cell.kind if len(rows) == 1 else f"{cell.row} {cell.kind}"


def summarise(cells: Sequence[Cell]) -> list[Json]:
    """Return each cell's entry in table.json."""
    samples = [cell.sample() for cell in cells]
    baselines: dict[str, Sample] = {}
    for cell, of_cell in zip(cells, samples, strict=True):
        if cell.kind == BASELINE:
            baselines[cell.row] = of_cell
    return [
        summary(cell, of_cell, baselines.get(cell.row))
        for cell, of_cell in zip(cells, samples, strict=True)
    ]


def summary(cell: Cell, of_cell: Sample, baseline: Sample | None) -> Json:
    """Return the values of a cell whose BLEU is ``of_cell``, compared with the baseline's."""
    first = cell.results[0]
    return {
        **_sizes_and_paper(cell),
        "row": cell.row,
        "attention": cell.kind,
        "seeds": [result.run.seed for result in cell.results],
        **first.counts,
        **{name: mean(cell.of_seeds(name)) for name in first.values},
        "bleu_confidence": round(of_cell.half_width(), 4),
        "bleu_deviation": deviation(cell.of_seeds("bleu")),
        **asdict(compared(of_cell, baseline)),
        "signature": first.scores["bleu"]["signature"],
        "chrf_signature": first.scores["chrf"]["signature"],
        "tokenised_signature": (first.scores.get("tokenised") or {}).get("signature"),
        "precision": first.run.training.precision,
        "sentences": first.scores["sentences"],
    }


def compared(of_cell: Sample, baseline: Sample | None) -> Comparison:
    """Compare a cell's sample with the baseline's; all is None without a baseline."""
    if baseline is None:
        return Comparison()
    if of_cell is baseline:
        has_learned = baseline.mean >= MIN_BASELINE_BLEU
        return Comparison(prr=100.0 if has_learned else None)
    return compare_samples(of_cell, baseline)


def _sizes_and_paper(cell: Cell) -> dict[str, Any]:
    """Return the sizes and training of a cell's models, and the paper's numbers of them."""
    training = cell.results[0].run.training
    options = TRANSLATION.options(training.options)
    row, other_sizes = TRANSLATION.nearest_row(options)
    paper = published(row, cell.kind)
    # Widths of heads and biases are no sizes of a row, but change the number of parameters.
    millions = f"{cell.results[0].counts['attention_parameters'] / 1e6:.2f}"
    if other_sizes or millions != paper["paper_parameters"]:
        paper = dict.fromkeys(paper)
    width = options["encoder_embed_dim"]
    heads = options["encoder_attention_heads"]
    return {
        "layers": options["encoder_layers"] + options["decoder_layers"],
        "width": width,
        "heads": heads,
        "head_width": options["attention_head_dim"] or width // heads,
        "dropout": float(options["dropout"]),
        "updates": training.updates,
        "batch": training.batch,
        **paper,
    }
