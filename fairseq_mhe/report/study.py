"""Statistics of a study: each variant's loss and BLEU over its seeds, beside its reference."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy import stats

from fairseq_mhe.report.results import Cell, mean, summary
from fairseq_mhe.report.table import deviation


@dataclass(frozen=True)
class Difference:
    """A sample's mean minus the control's, its 95% interval, and the two-sided p-value.

    Interval and p-value are Dunnett's, for all samples together: if no sample differs from the
    control, the chance that any p-value is below 0.05 is 5%. They are None if they are undefined.
    """

    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


def variant_rows(
    cells: Mapping[str, Cell], references: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the statistics of each variant, in the order of ``cells``.

    Args:
        cells: name of a variant -> its finished runs, one for each seed
        references: name of a variant -> name of the variant to compare it with; a reference
            names itself

    A row holds the values of `results.summary` (p of BLEU is not adjusted for the number of
    variants), and:

    - ``variant``, ``attention`` (place -> kind)
    - ``loss``, ``loss_deviation`` (over seeds), ``loss_of_seeds``; None if a model was not trained
    - ``compared_with``: the reference; absent in its own row, as the next ones
    - ``variants_compared``: how many trained variants are compared with that reference, and
      ``loss_difference``, ``loss_low``, ``loss_high``, ``loss_p``: as `Difference`; absent if this
      variant or its reference was not trained
    """
    samples = {name: cell.sample() for name, cell in cells.items()}
    by_name = {}
    for name, cell in cells.items():
        row = summary(cell, samples[name], samples.get(references[name]))
        losses = [loss for loss in cell.of_seeds("valid_loss") if loss is not None]
        by_name[name] = {
            **row,
            "variant": name,
            "attention": dict(cell.results[0].run.settings["attention"]),  # place -> kind
            "loss": mean(losses),
            "loss_deviation": deviation(losses),
            "loss_of_seeds": losses,
            "bleu_of_seeds": cell.of_seeds("bleu"),
        }
    for reference in by_name:
        others = [
            row for name, row in by_name.items() if references[name] == reference != name
        ]
        for row in others:
            row["compared_with"] = reference
        control = by_name[reference]["loss_of_seeds"]
        trained = [row for row in others if row["loss_of_seeds"] and control]
        losses = [row["loss_of_seeds"] for row in trained]
        differences = dunnett(losses, control) if trained else []
        for row, difference in zip(trained, differences, strict=True):
            row["variants_compared"] = len(trained)
            for field, value in asdict(difference).items():
                row[f"loss_{field}"] = value
    return list(by_name.values())


def dunnett(
    samples: Sequence[Sequence[float]], control: Sequence[float]
) -> list[Difference]:
    """Compare the values of each sample's seeds with the control's, by Dunnett's test.

    A sample with a value that is not finite is left out of the test. If no sample has several
    different values, or the control is not finite, there are differences only.
    """
    finite = [n for n, sample in enumerate(samples) if all(map(math.isfinite, sample))]
    tested = [samples[n] for n in finite]
    differences = []
    for sample in samples:
        differences.append(Difference(statistics.mean(sample) - statistics.mean(control)))
    seeds_differ = any(len(set(sample)) > 1 for sample in [*tested, control])
    if not tested or not seeds_differ or not all(map(math.isfinite, control)):
        return differences
    test = stats.dunnett(*tested, control=control, random_state=0)
    limits = test.confidence_interval()
    for n, low, high, p in zip(finite, limits.low, limits.high, test.pvalue, strict=True):
        mean_difference = differences[n].difference
        differences[n] = Difference(mean_difference, float(low), float(high), float(p))
    return differences


def notes_on_statistics(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notes below a study's table on what its statistics mean."""
    several = any(len(row["seeds"]) > 1 for row in rows)
    compared_with: dict[str, int] = {}
    for row in rows:
        if "variants_compared" in row:
            compared_with[row["compared_with"]] = row["variants_compared"]
    notes = []
    if several:
        for reference, count in compared_with.items():
            notes.append(
                f"Difference of the loss, its 95% interval and two-sided p: Dunnett's test with "
                f"{reference}, for {count} variants together (scipy.stats.dunnett)."
            )
        notes.append(
            "PRR: BLEU in percent of the reference's, with its 95% interval over sentences and "
            "seeds; ±: half the 95% interval of mean BLEU; sd: standard deviation over seeds."
        )
    else:
        notes.append(
            "One training each: no p of the loss. PRR: BLEU in percent of the reference's, with "
            "its 95% interval over sentences alone, which does not cover other seeds; ±: half such "
            "an interval of BLEU."
        )
    return notes
