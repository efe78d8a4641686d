"""``uptrain``: does starting from a trained MHA close the gap of kinds with fewer parameters?

For each seed the MHA run's model is converted to each kind and trained further for a share of the
updates ("uptraining", Ainslie et al. 2023, section 2.1); beside it stand the same kinds from
scratch, and MHA with and without those further updates, which is what an honest comparison needs:
uptrained models have seen more.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fairseq_mhe.common.arguments import positive_list, some_of
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.convert.change_kind import METHODS, convert_kind
from fairseq_mhe.convert.fit import MEAN
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.report.plots import COLOURS, look
from fairseq_mhe.report.significance import retained
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.run import Run, read_run, run_name
from studies import study as shared
from studies.study import Report, Study, or_dash

#: The ways to a model that are compared.
_SCRATCH, _UPTRAINED, _CONTROL = "from scratch", "uptrained from MHA", "MHA trained further"
_MHA = "mha"
#: What the learning rate does after the warm-up, by the recipe's schedule.
_DECAY = {
    "polynomial_decay": "decay to zero",
    "inverse_sqrt": "decay by the inverse square root of the updates",
}
#: Kind and way -> the run of each seed.
_Runs = Mapping[tuple[str, str], Sequence[Run]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``uptrain``."""
    add = parser.add_argument
    told = "folder of finished runs (ROW-KIND-seedN), mha's at least"
    add("--runs", type=Path, required=True, metavar="DIR", help=told)
    add("--row", default="tiny", help="size of the models (default: %(default)s)")
    kinds, told = list(MEAN), "(default: %(default)s)"
    every = ",".join(kinds)
    add("--attention", type=some_of(kinds), default=every, metavar="KIND,...", help=told)
    told = "of the runs (default: %(default)s)"
    add("--seeds", type=positive_list, default="1,2,3", metavar="N,...", help=told)
    add("--control", action="store_true", help="train MHA for the same further updates too")
    shared.add_tuning_arguments(parser, 0.2)
    shared.add_arguments(parser, "uptraining")


def run(args: argparse.Namespace) -> None:
    """Convert, train, translate, score and report; what is done already is not done again."""
    args.seeds = sorted(set(args.seeds))
    sources = [shared.finished_run(_scratch(args, _MHA, seed), _MHA) for seed in args.seeds]
    scratch = {kind: _from_scratch(args, kind) for kind in args.attention}
    study = shared.open_study(args, *sources, *(run for runs in scratch.values() for run in runs))
    with only_one(study.out, below=False):
        found: dict[tuple[str, str], list[Run]] = {(_MHA, _SCRATCH): sources}
        for kind, runs in scratch.items():
            if runs:
                found[kind, _SCRATCH] = runs
            found[kind, _UPTRAINED] = [_uptrained(study, mha, kind, args) for mha in sources]
        if args.control:
            found[_MHA, _CONTROL] = [_control(study, mha, args) for mha in sources]
        every = [run for runs in found.values() for run in runs]
        study.check_alike(every)
        study.work([run for (_, way), runs in found.items() if way != _SCRATCH for run in runs])
        study.score(every)
        _report(study, found, args)


def _from_scratch(args: argparse.Namespace, kind: str) -> list[Run]:
    """A kind's finished runs of all seeds, if there are."""
    folders = [_scratch(args, kind, seed) for seed in args.seeds]
    if all((folder / "model.pt").is_file() for folder in folders):
        return [read_run(folder) for folder in folders]
    missing = f"no finished runs of {kind} with seeds {args.seeds} in {args.runs}"
    say(f"{missing}: left out of the table")
    return []


def _scratch(args: argparse.Namespace, kind: str, seed: int) -> Path:
    return Path(args.runs) / run_name(args.row, dict.fromkeys(PLACES, kind), seed)


def _uptrained(study: Study, mha: Run, kind: str, args: argparse.Namespace) -> Run:
    """The run of ``kind`` that begins with the converted weights of ``mha``."""

    def action(output: Path, material: Any) -> dict[str, Any]:
        say(f"converting {mha.name} to {kind}")
        return convert_kind(output, kind, material, METHODS).report()

    inputs = {"to": kind, "sentences": args.sentences}
    start = study.convert(mha, _folder(kind, mha.seed), inputs, action)
    training = shared.share(mha.training, args.fraction, args.lr)
    return study.model_of(f"uptrained-{kind}-seed{mha.seed}", mha, kind, training, start=start)


def _control(study: Study, mha: Run, args: argparse.Namespace) -> Run:
    """MHA that goes on from its own weights, as the others do."""
    training = shared.share(mha.training, args.fraction, args.lr)
    return study.model_of(f"further-{_MHA}-seed{mha.seed}", mha, _MHA, training, start=mha.model)


def _folder(kind: str, seed: int) -> str:
    return f"start-{kind}-seed{seed}"


def _report(study: Study, found: _Runs, args: argparse.Namespace) -> None:
    study.check_alike([run for runs in found.values() for run in runs])
    first = found[_MHA, _SCRATCH][0]
    best = statistics.mean(study.cell(found[_MHA, _SCRATCH]).bleus())
    summaries = [_summary(study, kind, way, runs, best) for (kind, way), runs in found.items()]
    conversions: dict[str, dict[int, Any]] = {}
    lost = []
    for kind in args.attention:
        conversions[kind] = {seed: study.conversion(_folder(kind, seed)) for seed in args.seeds}
        report = conversions[kind][args.seeds[0]]
        losses = [report["loss_before"], *(report["tried"][name]["loss"] for name in METHODS)]
        lost.append([kind, *(f"{loss:.3f}" for loss in losses)])
    tuned = shared.share(first.training, args.fraction, args.lr)
    seeds = list(map(str, args.seeds))
    columns = ["attention", "how", "attention parameters", "own updates", "BLEU", "±", "PRR"]
    told = f"Loss on valid (nats per token) before any fine-tuning, seed {args.seeds[0]}"
    tables = [
        (f"BLEU over seeds {', '.join(seeds)}", [*columns, *seeds], list(map(_row, summaries))),
        (told, ["attention", "MHA's", "least squares", "mean of the heads"], lost),
    ]
    notes = [
        f"BLEU `{study.signature(first)}` on {study.subset}; ± is the standard deviation over "
        f"seeds; PRR: mean BLEU in percent of MHA's from scratch ({best:.2f}).",
        f"From scratch: {first.training.updates:,} updates. Uptrained: {tuned.updates:,} more, "
        f"from the averaged MHA of the same seed ({_rate(tuned)}).",
        "Each conversion is the better of least squares and the mean of the heads, by loss on "
        "valid.",
    ]
    results = {"summaries": summaries, "conversions": conversions, "fine_tuning": asdict(tuned)}
    title = "Smaller kinds of attention: from scratch, and from a trained MHA"
    draw = partial(_draw, summaries=summaries, title=title)
    Report("uptraining", title, results, tables, notes, draw).write(study)


def _rate(tuned: Training) -> str:
    """The learning rate of further training, in words."""
    begin = f"peak learning rate {tuned.lr}, warm-up {tuned.warmup_updates}"
    return f"{begin}, {_DECAY[tuned.schedule]}"


def _summary(study: Study, kind: str, way: str, runs: Sequence[Run], best: float) -> dict[str, Any]:
    found = study.over_seeds(runs)
    mean = statistics.mean(found["bleus"])
    return {
        "attention": kind,
        "way": way,
        "attention_parameters": read_json(runs[0].counts)["attention_parameters"],
        "updates": runs[0].training.updates,
        **found,
        "prr": retained(mean, best),
    }


def _row(summary: Mapping[str, Any]) -> list[str]:
    return [
        summary["attention"],
        summary["way"],
        f"{summary['attention_parameters']:,}",
        f"{summary['updates']:,}",
        f"{summary['bleu']:.2f}",
        or_dash(summary["deviation"], ".2f"),
        or_dash(summary["prr"], ".1f"),
        *(f"{value:.2f}" for value in summary["bleus"]),
    ]


def _draw(figure: Figure, summaries: Sequence[Mapping[str, Any]], title: str) -> None:
    """A mark for the mean of each kind and way, each seed a dot."""
    axes = figure.subplots()
    kinds = list(dict.fromkeys(s["attention"] for s in summaries))
    there = {s["way"] for s in summaries}
    ways = [way for way in (_SCRATCH, _CONTROL, _UPTRAINED) if way in there]
    width = 0.8 / len(ways)
    for index, way in enumerate(ways):
        shift = (index - (len(ways) - 1) / 2) * width
        shown = [s for s in summaries if s["way"] == way]
        places = [kinds.index(s["attention"]) + shift for s in shown]
        means, bars = [s["bleu"] for s in shown], [s["deviation"] or 0.0 for s in shown]
        style = {**look(index), "linestyle": "none", "markersize": 11, "capsize": 5}
        axes.errorbar(places, means, yerr=bars, label=way, **style)
        for place, s in zip(places, shown, strict=True):
            beside = [place + width / 4] * len(s["bleus"])
            axes.plot(beside, s["bleus"], ".", color=COLOURS[index], markersize=6)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_ylabel("BLEU (bars: standard deviation; dots: seeds)", fontsize=12)
    axes.set_title(title, fontsize=12)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, fontsize=11)
