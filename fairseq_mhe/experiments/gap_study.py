"""``fairseq-mhe gap-study``: why MHE-Mul stays behind MHA, and what moves its BLEU beyond the noise of seeds.

Each variant changes one thing of the row's MHE-Mul: how its shared projections or head embeddings
begin, their weight decay, the learning rate, where MHE stands, how many heads share its parameters.
Each is trained with several seeds and compared with MHA and with MHE-Mul as the paper has it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import join
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from scipy import stats

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, read_json
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.experiments import cells, studies
from fairseq_mhe.experiments.evaluate import evaluate
from fairseq_mhe.experiments.studies import Study
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, Row
from fairseq_mhe.prepare.data_folder import open_prepared
from fairseq_mhe.report.plots import COLOURS
from fairseq_mhe.report.published import prr
from fairseq_mhe.report.significance import UNSTABLE, Noise, adjusted, compare_seeds, noise_of
from fairseq_mhe.runs import devices, pipeline
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.recipes import Recipe, Training
from fairseq_mhe.runs.run import PLACES, Run, open_run, settings_of
from fairseq_mhe.runs.scoring import read_lines

MHA, MHE = "mha", "mhe_mul"
#: What the variants ask, and a name for it.
QUESTIONS = {
    "reference": "what is compared with",
    "init": "initial scale of the shared projections (the default is Xavier's, divided by the root of 2)",
    "embeddings": "offset and spread of the head embeddings (default: 1 and 0.02)",
    "decay": "weight decay of the head embeddings (default: none)",
    "rate": "learning rate, MHA's too",
    "place": "MHE in one place only",
    "heads": "number of heads at the same parameters, MHA's too",
}
#: The share of false ones among the differences that are called real.
LEVEL = 0.05
#: Numbers of heads that are tried.
HEADS = (1, 2, 8, 16)


@dataclass(frozen=True, eq=False)
class Variant:
    """A way to build and train the row: everything else is as its recipe has it.

    ``options``: further words for fairseq-train; ``changes``: fields of the recipe's ``Training``.
    """

    name: str
    question: str
    attention: Mapping[str, str]
    options: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def everywhere(self) -> bool:
        """Whether all its attention is MHE, so that it could take the place of the default."""
        return set(self.attention.values()) == {MHE}


def variants(row: str, training: Training) -> list[Variant]:
    """Every variant of a row (a key of ``RECIPES``), the two references first."""
    mha, mhe = dict.fromkeys(PLACES, MHA), dict.fromkeys(PLACES, MHE)
    return [
        Variant(MHA, "reference", mha),
        Variant(MHE, "reference", mhe),
        *(
            Variant(f"init-{init}", "init", mhe, ("--shared-projection-init", init))
            for init in ("head", "xavier")
        ),
        *(
            Variant(f"std-{std}", "embeddings", mhe, ("--head-embedding-std", std))
            for std in ("0.1", "0.5")
        ),
        Variant(
            "offset-0",
            "embeddings",
            mhe,
            ("--head-embedding-offset", "0", "--head-embedding-std", "1"),
        ),
        *(
            Variant(f"decay-{x:g}", "decay", mhe, (), {"head_embedding_weight_decay": x})
            for x in (0.1, 1.0)
        ),
        *(
            Variant(f"{prefix}lr-{name}", "rate", attention, (), {"lr": training.lr * factor})
            for prefix, attention in (("", mhe), ("mha-", mha))
            for name, factor in (("half", 0.5), ("double", 2.0))
        ),
        *(Variant(f"only-{place}", "place", {**mha, place: MHE}) for place in PLACES),
        *_heads({**ROWS, **SMALL_ROWS}[row]),
    ]


def _heads(row: Row) -> Iterator[Variant]:
    """Other numbers of heads whose width makes the parameters those of the row's MHE; MHA with as many parameters."""
    per_width = {heads: row.embed_dim * (heads + 3) + 3 * heads for heads in (row.heads, *HEADS)}
    parameters = row.embed_dim // row.heads * per_width[row.heads]  # of a sublayer
    for heads in HEADS:
        if heads != row.heads:
            width = round(parameters / per_width[heads])
            yield Variant(
                f"heads-{heads}x{width}",
                "heads",
                dict.fromkeys(PLACES, MHE),
                _heads_options(heads, width),
            )
    width = round(parameters / (4 * row.embed_dim * row.heads))
    name = f"mha-{row.heads}x{width}"
    yield Variant(name, "heads", dict.fromkeys(PLACES, MHA), _heads_options(row.heads, width))


def _heads_options(heads: int, width: int) -> tuple[str, ...]:
    sides = (f"--{side}-attention-heads" for side in ("encoder", "decoder"))
    return (
        *(word for side in sides for word in (side, str(heads))),
        "--attention-head-dim",
        str(width),
    )


def chosen(every: Sequence[Variant], names: str | None) -> list[Variant]:
    """The variants that ``names`` (of variants or questions, with commas between) ask for, and the references.

    Raises:
        UserError: there is none of such a name.
    """
    if names is None:
        return list(every)
    words = set(names.split(","))
    known = {variant.name for variant in every} | set(QUESTIONS)
    if unknown := sorted(words - known):
        raise UserError(
            f"--only {unknown[0]}: there is no such variant; choose of the questions {', '.join(QUESTIONS)}, or of "
            f"{', '.join(variant.name for variant in every)}"
        )
    return [v for v in every if v.question == "reference" or words & {v.name, v.question}]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe gap-study``."""
    parser.add_argument("--row", default="tiny", help="size of the models (default: %(default)s)")
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        help=f"variants, or questions: {', '.join(QUESTIONS)} (default: all)",
    )
    parser.add_argument(
        "--seeds", default="1,2,3", metavar="N,...", help="random seeds (default: %(default)s)"
    )
    parser.add_argument(
        "--finished-only", action="store_true", help="train nothing: the report of what is finished"
    )
    cells.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train, translate and score what is not, a few at a time, and report after each few."""
    recipe = cells.chosen_recipe(args.row, args)
    every = chosen(variants(recipe.row, recipe.training), args.only)
    seeds = cells.seeds(args.seeds)
    cells.check_tensorboard(args.tensorboard)
    data, out = open_prepared(args.data), output_folder(args.out)
    device = devices.asked_for(args, len(every) * len(seeds))
    study = Study(
        out, data, args.subset, device.gpu, Console(stderr=True), join(["fairseq-mhe", *args.typed])
    )
    with only_one(out):
        gap = GapStudy(study, recipe, every, sorted(seeds), device, args.tensorboard)
        if not args.finished_only:
            gap.run()
        gap.report()


class GapStudy:
    """The runs of every variant, and the report."""

    def __init__(
        self,
        study: Study,
        recipe: Recipe,
        every: Sequence[Variant],
        seeds: Sequence[int],
        device: Device,
        tensorboard: bool,
    ) -> None:
        self.study, self.recipe, self.seeds, self.device, self.tensorboard = (
            study,
            recipe,
            seeds,
            device,
            tensorboard,
        )
        self.runs = {variant: [self.open(variant, seed) for seed in seeds] for variant in every}

    def open(self, variant: Variant, seed: int) -> Run:
        """A variant's run folder; the references' are those that run-table would make."""
        training, data = replace(self.recipe.training, **variant.changes), self.study.data.identity
        settings = settings_of(
            self.recipe.row, variant.attention, seed, training.settings(), data, variant.options
        )
        folder = self.study.out / f"{self.recipe.row}-{variant.name}-seed{seed}"
        return open_run(folder, settings, {"data": str(self.study.data.folder)})

    def run(self) -> None:
        """All that is not done, in parts that keep the slots at work; the report grows with each."""
        waiting = [run for runs in self.runs.values() for run in runs if not self.study.scored(run)]
        size = self.device.slots * len(self.seeds)
        for start in range(0, len(waiting), size):
            part = waiting[start : start + size]
            cells.check_disk(part, self.study.data)
            names = ", ".join(run.name for run in part)
            self.study.say(
                f"{len(waiting) - start} of {sum(map(len, self.runs.values()))} models to do, now {names}"
            )
            with Board("updates", console=self.study.console) as board:
                pipeline.train(part, self.study.data, self.device, board, self.tensorboard)
            for run in part:
                evaluate(run, self.study.data, self.study.subset, self.device.alone())
                _tidy(run)
            done = self.finished()
            if start + size < len(waiting) and _comparable(done):
                self.write(done, show=False)

    def finished(self) -> dict[Variant, list[Run]]:
        """The variants of which every seed is scored."""
        return {v: runs for v, runs in self.runs.items() if all(map(self.study.scored, runs))}

    def report(self) -> None:
        """Write and print what is known.

        Raises:
            UserError: a reference is not finished.
        """
        done = self.finished()
        if not _comparable(done):
            raise UserError(
                f"{self.study.out}: {MHA} and {MHE} are not finished: there is nothing to compare with"
            )
        self.write(done, show=True)

    def write(self, done: Mapping[Variant, Sequence[Run]], show: bool) -> None:
        """The report of the variants that are ``done``; ``show``: print it, too."""
        _report(
            self.study,
            self.recipe,
            done,
            [variant.name for variant in self.runs if variant not in done],
            show,
        )


def _comparable(done: Iterable[Variant]) -> bool:
    """Whether both references are among them."""
    return {MHA, MHE} <= {variant.name for variant in done}


def _tidy(run: Run) -> None:
    """Remove the numbered checkpoints of a scored run: with many runs they would fill the disk."""
    for path in run.checkpoints.glob("checkpoint_*_*.pt"):
        path.unlink()
    (run.checkpoints / "checkpoint_best.pt").unlink(missing_ok=True)


def summarise(study: Study, done: Mapping[Variant, Sequence[Run]]) -> list[dict[str, Any]]:
    """One object for each variant: scores, and how it differs from both references."""
    bleus = {variant.name: [study.bleu(run) for run in runs] for variant, runs in done.items()}
    (mha,) = (runs for variant, runs in done.items() if variant.name == MHA)
    noise = noise_of(bleus)
    found = []
    for variant, runs in done.items():
        found.append(
            {
                "variant": variant.name,
                "question": variant.question,
                "attention": variant.attention,
                "options": list(variant.options),
                "changes": dict(variant.changes),
                **read_json(runs[0].counts),
                "seeds": [run.seed for run in runs],
                "bleus": bleus[variant.name],
                "bleu": round(statistics.mean(bleus[variant.name]), 4),
                "deviation": round(statistics.stdev(bleus[variant.name]), 4)
                if len(runs) > 1
                else None,
                "unstable": noise is not None and variant.name in noise.unstable,
                **_retained(study, runs, mha),
            }
        )
    for reference in (MHE, MHA):
        others = [summary for summary in found if summary["variant"] != reference]
        names = [summary["variant"] for summary in others]
        p_values = (
            adjusted([noise.p_value(bleus, name, reference) for name in names])
            if noise
            else [None] * len(names)
        )
        for summary, p_value in zip(others, p_values, strict=True):
            difference = statistics.mean(summary["bleus"]) - statistics.mean(bleus[reference])
            summary[f"against_{reference}"] = {
                "difference": round(difference, 4),
                "p_value": p_value,
                "beyond_noise": p_value is not None and p_value < LEVEL,
            }
    return found


def _retained(
    study: Study, runs: Sequence[Run], baselines: Sequence[Run]
) -> dict[str, float | None]:
    """PRR with its bootstrap interval over sentences and seeds."""
    ours, theirs = (
        [read_lines(run.subset(study.subset) / "hypotheses.txt") for run in of]
        for of in (runs, baselines)
    )
    compared = compare_seeds(
        ours, theirs, read_lines(runs[0].subset(study.subset) / "references.txt")
    )
    best = statistics.mean(study.bleu(run) for run in baselines)
    mean = statistics.mean(study.bleu(run) for run in runs)
    value = round(prr(mean, best), 2) if best > 0 else None
    return {"prr": value, "prr_low": compared.prr_low, "prr_high": compared.prr_high}


def _report(
    study: Study,
    recipe: Recipe,
    done: Mapping[Variant, Sequence[Run]],
    left: Sequence[str],
    show: bool,
) -> None:
    summaries = summarise(study, done)
    noise = noise_of({summary["variant"]: summary["bleus"] for summary in summaries})
    seeds = summaries[0]["seeds"]
    columns = [
        "variant",
        "attention parameters",
        "BLEU",
        "sd",
        "PRR",
        "PRR 95%",
        "to MHE-Mul",
        "p",
        "to MHA",
        "p",
        "verdict",
    ]
    tables = [
        (
            f"{name}: {what}",
            [*columns, *map(str, seeds)],
            [_row(s) for s in summaries if s["question"] == name],
        )
        for name, what in QUESTIONS.items()
        if any(s["question"] == name for s in summaries)
    ]
    title = f"Why the gap? {recipe.row}, {recipe.training.updates:,} updates" + (
        " (unfinished)" if left else ""
    )
    results = {
        "row": recipe.row,
        "training": recipe.training.settings(),
        "data": str(study.data.folder),
        "signature": study.signature(next(iter(done.values()))[0]),
        "noise": noise
        and {
            "deviation": round(noise.deviation, 4),
            "degrees_of_freedom": noise.freedom,
            "unstable": sorted(noise.unstable),
        },
        "variants": summaries,
        "unfinished": list(left),
    }
    notes = [
        *_notes(study, recipe, done, summaries, noise),
        *([f"Not done yet: {', '.join(left)}."] if left else []),
    ]
    studies.write_report(
        study,
        "gap",
        title,
        results,
        tables,
        notes,
        lambda figure: _draw(figure, summaries, noise, title),
        show,
    )


def _row(summary: Mapping[str, Any]) -> list[str]:
    low, high = summary["prr_low"], summary["prr_high"]
    differences = [summary.get(f"against_{reference}") for reference in (MHE, MHA)]
    cells_ = [word for difference in differences for word in _difference(difference)]
    return [
        summary["variant"],
        f"{summary['attention_parameters']:,}",
        f"{summary['bleu']:.2f}",
        "-" if summary["deviation"] is None else f"{summary['deviation']:.2f}",
        "-" if summary["prr"] is None else f"{summary['prr']:.1f}",
        "-" if low is None else f"{low:.1f} to {high:.1f}",
        *cells_,
        _verdict(summary),
        *(f"{value:.2f}" for value in summary["bleus"]),
    ]


def _difference(compared: Mapping[str, Any] | None) -> tuple[str, str]:
    if compared is None:
        return "", ""
    p_value = compared["p_value"]
    return f"{compared['difference']:+.2f}", "-" if p_value is None else f"{p_value:.3f}"


def _verdict(summary: Mapping[str, Any]) -> str:
    """Against the default MHE-Mul, in a word."""
    compared = summary.get(f"against_{MHE}")
    if compared is None or compared["p_value"] is None:
        return ""
    word = "better" if compared["difference"] > 0 else "worse"
    return (word if compared["beyond_noise"] else "within the noise") + (
        ", unstable" if summary["unstable"] else ""
    )


def _notes(
    study: Study,
    recipe: Recipe,
    done: Mapping[Variant, Sequence[Run]],
    summaries: Sequence[Mapping[str, Any]],
    noise: Noise | None,
) -> list[str]:
    first = next(iter(done.values()))[0]
    notes = [
        f"BLEU `{study.signature(first)}` on {study.subset}; everything but what a variant names is the recipe of "
        f"{recipe.row} over {recipe.training.updates:,} updates, batches of {recipe.training.batch_tokens:,} tokens.",
        "PRR: mean BLEU in percent of MHA's with the row's learning rate; its interval is a bootstrap of sentences and "
        "seeds.",
    ]
    if noise is None:
        return [*notes, "One seed: nothing can be said of noise."]
    count = len(summaries[0]["seeds"])
    least = stats.t.isf(LEVEL / 2, noise.freedom) * noise.deviation * (2 / count) ** 0.5
    steady = len(done) - len(noise.unstable)
    notes.append(
        f"Noise: the standard deviation between seeds is {noise.deviation:.2f} BLEU, pooled over {steady} variants "
        f"({noise.freedom} degrees of freedom): two means of {count} seeds that differ by less than {least:.2f} cannot "
        "be told apart, even alone."
    )
    if noise.unstable:
        notes.append(
            f"Unstable: the seeds of {', '.join(sorted(noise.unstable))} differ more than the others' (Cochran's test "
            f"for outlying variances, p < {UNSTABLE:g}); not pooled, and compared by Welch's t-test."
        )
    notes.append(
        "p: t-test with that deviation, adjusted for the number of variants (Benjamini and Hochberg). Verdict: better "
        f"or worse than MHE-Mul where p < {LEVEL:g}; it is about these sentences, PRR's interval about others too."
    )
    best = max(
        (s for s, v in zip(summaries, done, strict=True) if v.everywhere),
        key=lambda s: float(s["bleu"]),
    )
    if best["variant"] == MHE:
        notes.append("No variant with MHE in all places is better than the paper's form.")
    else:
        told = _verdict(best)
        notes.append(
            f"The best with MHE in all places: {best['variant']}, {best[f'against_{MHE}']['difference']:+.2f} to the "
            f"paper's form ({told})."
        )
    return notes


def _draw(
    figure: Figure, summaries: Sequence[Mapping[str, Any]], noise: Noise | None, title: str
) -> None:
    """A line for each variant: its mean, its seeds, and both references with what noise alone does to a mean."""
    figure.set_size_inches(9, max(4.0, 0.32 * len(summaries) + 1.5))
    axes = figure.subplots()
    marks = {MHA: ("s", COLOURS[0]), MHE: ("o", COLOURS[1])}
    for place, summary in enumerate(summaries):
        style, colour = marks.get(summary["variant"], ("D", COLOURS[2]))
        beyond = summary.get(f"against_{MHE}", {}).get("beyond_noise", True)
        axes.plot(
            summary["bleus"], [place] * len(summary["bleus"]), ".", color="#7F7F7F", markersize=6
        )
        axes.plot(
            summary["bleu"],
            place,
            style,
            color=colour,
            markersize=9,
            fillstyle="full" if beyond else "none",
        )
        if summary["variant"] in marks:
            wide = 0.0 if noise is None else noise.deviation / len(summary["bleus"]) ** 0.5
            axes.axvspan(
                summary["bleu"] - wide,
                summary["bleu"] + wide,
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
            axes.axvline(summary["bleu"], color=colour, linewidth=1, linestyle=":")
    axes.set_yticks(np.arange(len(summaries)), [summary["variant"] for summary in summaries])
    axes.invert_yaxis()
    axes.set_xlabel(
        "BLEU (dots: seeds; hollow: within the noise of MHE-Mul's; bands: a mean ± its error)",
        fontsize=11,
    )
    axes.set_title(title, fontsize=12)
    axes.grid(axis="x", alpha=0.3)
