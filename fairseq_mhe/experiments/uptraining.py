"""``fairseq-mhe uptrain``: does starting from a trained MHA close the gap of smaller kinds at the same parameter count?

For each seed the MHA run's model is converted to each kind and trained further for a share of the
updates ("uptraining", Ainslie et al. 2023, section 2.1); beside it stand the same kinds from
scratch, and MHA with and without those further updates, which is what an honest comparison needs:
uptrained models have seen more.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from fairseq_mhe.attention import kinds_from_heads
from fairseq_mhe.common.arguments import positive
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.convert.change_kind import METHODS, convert_kind
from fairseq_mhe.experiments import studies
from fairseq_mhe.experiments.studies import CONVERSION, Study
from fairseq_mhe.report.plots import COLOURS, MARKS
from fairseq_mhe.report.published import prr
from fairseq_mhe.runs.run import PLACES, Run, read_run, run_name

#: The ways to a model that are compared.
SCRATCH, UPTRAINED, CONTROL = "from scratch", "uptrained from MHA", "MHA trained further"
MHA = "mha"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe uptrain``."""
    parser.add_argument(
        "--runs",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of finished runs (ROW-KIND-seedN), mha's at least",
    )
    parser.add_argument("--row", default="tiny", help="size of the models (default: %(default)s)")
    parser.add_argument(
        "--attention",
        type=_kinds,
        default=",".join(kinds_from_heads()),
        metavar="KIND,...",
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default="1,2,3",
        metavar="N,...",
        help="of the runs (default: %(default)s)",
    )
    parser.add_argument(
        "--fraction",
        type=float,
        default=0.2,
        metavar="F",
        help="share of the updates (default: %(default)s)",
    )
    parser.add_argument(
        "--lr", type=float, help="peak learning rate of the further updates (default: the run's)"
    )
    parser.add_argument(
        "--control", action="store_true", help="train MHA for the same further updates too"
    )
    parser.add_argument(
        "--sentences", type=positive, default=1000, metavar="N", help="pairs to fit and judge with"
    )
    studies.add_arguments(parser, "uptraining")


def _kinds(text: str) -> list[str]:
    for word in text.split(","):
        if word not in kinds_from_heads():
            raise argparse.ArgumentTypeError(
                f"cannot convert to {word!r}; choose of: {', '.join(kinds_from_heads())}"
            )
    return list(dict.fromkeys(text.split(",")))


def _seeds(text: str) -> list[int]:
    return sorted({positive(word) for word in text.split(",")})


def run(args: argparse.Namespace) -> None:
    """Convert, train, translate, score and report; what is done already is not done again."""
    console = Console(stderr=True)
    sources = {seed: studies.finished_run(_scratch(args, MHA, seed), MHA) for seed in args.seeds}
    study = studies.open_study(args, next(iter(sources.values())), console)
    with only_one(study.out, below=False):
        found: dict[tuple[str, str], list[Run]] = {(MHA, SCRATCH): list(sources.values())}
        for kind in args.attention:
            scratch = [_scratch(args, kind, seed) for seed in args.seeds]
            if all((folder / "model.pt").is_file() for folder in scratch):
                found[kind, SCRATCH] = [read_run(folder) for folder in scratch]
            else:
                study.say(
                    f"no finished runs of {kind} with seeds {args.seeds} in {args.runs}: left out of the table"
                )
            found[kind, UPTRAINED] = [
                _uptrained(study, mha, kind, args) for mha in sources.values()
            ]
        if args.control:
            found[MHA, CONTROL] = [_control(study, mha, args) for mha in sources.values()]
        study.train([r for (_, way), runs in found.items() if way != SCRATCH for r in runs])
        study.score([r for runs in found.values() for r in runs if not study.scored(r)])
        _report(study, found, args)


def _scratch(args: argparse.Namespace, kind: str, seed: int) -> Path:
    return args.runs / run_name(args.row, dict.fromkeys(PLACES, kind), seed)


def _uptrained(study: Study, mha: Run, kind: str, args: argparse.Namespace) -> Run:
    """The run of ``kind`` that begins with the converted weights of ``mha``."""

    def convert(source: Any, output: Path, material: Any) -> dict[str, Any]:
        study.say(f"converting {mha.name} to {kind}")
        return convert_kind(source, output, kind, material, METHODS, study.console).report()

    folder = _start(study, kind, mha.seed)
    start = studies.perform_conversion(study, mha, folder, {"to": kind}, args.sentences, convert)
    recipe = studies.share(mha.training, args.fraction, args.lr)
    return study.model_of(f"uptrained-{kind}-seed{mha.seed}", mha, kind, recipe, start=start)


def _control(study: Study, mha: Run, args: argparse.Namespace) -> Run:
    """MHA that goes on from its own weights, as the others do."""
    recipe = studies.share(mha.training, args.fraction, args.lr)
    return study.model_of(f"further-{MHA}-seed{mha.seed}", mha, MHA, recipe, start=mha.model)


def _start(study: Study, kind: str, seed: int) -> Path:
    return study.out / f"start-{kind}-seed{seed}"


def _report(
    study: Study, found: Mapping[tuple[str, str], Sequence[Run]], args: argparse.Namespace
) -> None:
    first = found[MHA, SCRATCH][0]
    best = statistics.mean(study.bleu(run) for run in found[MHA, SCRATCH])
    summaries = [_summary(study, kind, way, runs, best) for (kind, way), runs in found.items()]
    conversions = {
        kind: {seed: read_json(_start(study, kind, seed) / CONVERSION) for seed in args.seeds}
        for kind in args.attention
    }
    training, tuned = first.training, studies.share(first.training, args.fraction, args.lr)
    columns = [
        "attention",
        "how",
        "attention parameters",
        "own updates",
        "BLEU",
        "±",
        "PRR",
        *map(str, args.seeds),
    ]
    rows = [
        [
            s["attention"],
            s["way"],
            f"{s['attention_parameters']:,}",
            f"{s['updates']:,}",
            f"{s['bleu']:.2f}",
            "-" if s["deviation"] is None else f"{s['deviation']:.2f}",
            "-" if s["prr"] is None else f"{s['prr']:.1f}",
            *(f"{value:.2f}" for value in s["bleus"]),
        ]
        for s in summaries
    ]
    lost = [
        [
            kind,
            f"{report['loss_before']:.3f}",
            *(f"{report['tried'][name]['loss']:.3f}" for name in METHODS),
        ]
        for kind, reports in conversions.items()
        for report in list(reports.values())[:1]
    ]
    tables = [
        (f"BLEU over seeds {', '.join(map(str, args.seeds))}", columns, rows),
        (
            f"Loss on valid (nats per token) before any fine-tuning, seed {args.seeds[0]}",
            ["attention", "MHA's", "least squares", "mean of the heads"],
            lost,
        ),
    ]
    notes = [
        f"BLEU `{study.signature(first)}` on {study.subset}; ± is the standard deviation over seeds; PRR: mean BLEU in "
        f"percent of MHA's from scratch ({best:.2f}).",
        f"From scratch: {training.updates:,} updates. Uptrained: {tuned.updates:,} more, from the averaged MHA of the "
        f"same seed (peak learning rate {tuned.lr}, warm-up {tuned.warmup_updates}, decay to zero).",
        "Each conversion is the better of least squares and the mean of the heads, by loss on valid.",
    ]
    results = {"summaries": summaries, "conversions": conversions, "fine_tuning": asdict(tuned)}
    title = "Smaller kinds of attention: from scratch, and from a trained MHA"
    studies.write_report(
        study,
        "uptraining",
        title,
        results,
        tables,
        notes,
        lambda figure: _draw(figure, summaries, title),
    )


def _summary(study: Study, kind: str, way: str, runs: Sequence[Run], best: float) -> dict[str, Any]:
    bleus = [study.bleu(run) for run in runs]
    return {
        "attention": kind,
        "way": way,
        "attention_parameters": read_json(runs[0].counts)["attention_parameters"],
        "updates": runs[0].training.updates,
        "seeds": [run.seed for run in runs],
        "bleus": bleus,
        "bleu": round(statistics.mean(bleus), 4),
        "deviation": round(statistics.stdev(bleus), 4) if len(bleus) > 1 else None,
        "prr": round(prr(statistics.mean(bleus), best), 2) if best > 0 else None,
    }


def _draw(figure: Figure, summaries: Sequence[Mapping[str, Any]], title: str) -> None:
    """A mark for the mean of each kind and way, each seed a dot."""
    axes = figure.subplots()
    kinds = list(dict.fromkeys(s["attention"] for s in summaries))
    ways = [way for way in (SCRATCH, CONTROL, UPTRAINED) if any(s["way"] == way for s in summaries)]
    width = 0.8 / len(ways)
    for index, way in enumerate(ways):
        shown = [s for s in summaries if s["way"] == way]
        places = [
            kinds.index(s["attention"]) + (index - (len(ways) - 1) / 2) * width for s in shown
        ]
        look: dict[str, Any] = {
            "color": COLOURS[index],
            "marker": MARKS[index],
            "linestyle": "none",
        }
        deviations = [s["deviation"] or 0.0 for s in shown]
        axes.errorbar(
            places,
            [s["bleu"] for s in shown],
            yerr=deviations,
            markersize=11,
            capsize=5,
            label=way,
            **look,
        )
        for place, s in zip(places, shown, strict=True):
            axes.plot(
                [place + width / 4] * len(s["bleus"]),
                s["bleus"],
                ".",
                color=COLOURS[index],
                markersize=6,
            )
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_ylabel("BLEU (bars: standard deviation; dots: seeds)", fontsize=12)
    axes.set_title(title, fontsize=12)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=11)
