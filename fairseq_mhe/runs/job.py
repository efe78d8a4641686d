"""One training and its run folder: config.json has the settings, the other files the results."""

import filecmp
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import plain
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import (
    FOLDER_VERSION,
    Json,
    check_folder_version,
    new_folder,
    output_folder,
    read_json,
    write_json,
)
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.system import versions
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.training import Training

#: fairseq's file name for the newest checkpoint.
LAST = "checkpoint_last.pt"


def _path(*names: str) -> Any:
    return property(lambda job: job.folder.joinpath(*names))


@dataclass(frozen=True)
class Job:
    """A run folder and its config.json. A step is finished when its result file exists."""

    folder: Path
    config: Json

    log = _path("train.log")  # output of fairseq-train
    checkpoints = _path("checkpoints")  # fairseq-train's --save-dir
    last = _path("checkpoints", LAST)
    metrics = _path("metrics.json")  # learning curve and speed, written after training
    model = _path("model.pt")  # averaged checkpoint of a translation model
    counts = _path("counts.json")  # parameters and cache size of model.pt
    scores = _path("scores.json")  # of a language model; translation has one a data set
    row = property(lambda job: job.settings["row"])  # name of the recipe, such as base
    seed = property(lambda job: job.settings["seed"])

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def settings(self) -> Json:
        """What determines the trained model; the "options" are fairseq-train's by name."""
        return self.config["settings"]

    @property
    def kind(self) -> str:
        """The kind of attention, or the kinds of a mixed model, as `kind_name` joins them."""
        return kind_name(self.settings["attention"])

    @property
    def training(self) -> Training:
        return Training(self.settings["options"])

    @property
    def decoding(self) -> Decoding:
        return Decoding(**self.config["decoding"])

    def write_config(self) -> None:
        """Write config.json, which reserves the folder for these settings."""
        write_json(self.folder / "config.json", self.config)

    def input_path(self, name: str) -> Path:
        """Return where the "data" or the "start" checkpoint lay when the job was planned."""
        return Path(self.config["surroundings"][name])

    def open_data(self, moved: Path | None = None) -> DataFolder:
        """Open the parallel text, at ``moved`` if given; UserError if it is missing or differs."""
        if self.config["decoding"] is None:
            raise self.unfinished("translations")
        folder = moved or self.input_path("data")
        advice = "give its path by --data"
        if not folder.exists():
            raise UserError(f"{folder}, the data of {self.folder}, is missing: {advice}")
        data = open_data(folder)
        if data.fingerprint != self.settings["data"]["fingerprint"]:
            raise UserError(f"{folder} is not the data of {self.folder}: {advice}")
        return data

    def unfinished(self, missing: str) -> UserError:
        """Return the error of a command that needs the file ``missing`` of a translation run."""
        if self.config["decoding"] is None:
            problem = "is a language model's run, which pretrain or finetune scores"
            return UserError(f"{self.folder} {problem}: give one of translation")
        has_weights = self.model.exists() or self.checkpoints.exists()
        if self.metrics.exists() and not has_weights:
            return UserError(
                f"{self.folder} has no model.pt and no checkpoints to average (fairseq-mhe keep "
                "copies neither): use the original run folder, or train in another --out"
            )
        return UserError(
            f"{self.folder} is not finished: it has no {missing}; give its training command again "
            "to resume it, or fairseq-mhe evaluate to score it on a data set"
        )


def kind_name(attention: Mapping[str, str]) -> str:
    """Return the kind that all places share, or the kinds of all places joined by dashes."""
    kinds = list(attention.values())
    return kinds[0] if len(set(kinds)) == 1 else "-".join(kinds)


def settings_of(
    row: str,
    attention: Mapping[str, str],
    seed: int,
    training: Training,
    data: Any,
    **extra: Any,
) -> Json:
    """Return the settings that determine the trained model; ``attention``: place -> kind."""
    kinds = {PLACES[place]: kind for place, kind in attention.items()}
    if len(set(attention.values())) == 1:
        kinds = {"attention": kind_name(attention)}
    options = {**training.options, **kinds, "seed": seed}
    settings = {"row": row, "attention": dict(attention), "seed": seed, "data": data}
    return {**settings, **extra, "options": options}


def plan_job(
    folder: Path, settings: Json, input_paths: Json, decoding: Decoding | None = None
) -> Job:
    """Return the job of a run folder without writing it; UserError for a folder of other settings.

    ``input_paths``: of "data" and "start"; they may differ when the command is given again.
    """
    config = {
        "folder_version": FOLDER_VERSION,
        "settings": settings,
        "surroundings": input_paths,
        "decoding": decoding and asdict(decoding),
        "versions": versions(),
    }
    job = Job(folder, plain(config))
    if not (folder / "config.json").exists():
        return job
    old = read_job(folder)
    before = _flat(old.config)
    changes = []
    for name, value in differing(before, _flat(job.config)).items():
        changes.append(f"{name}: {before.get(name)}, now {value}")
    if changes:
        raise UserError(
            f"{folder} has other settings ({'; '.join(changes)}): "
            "give the same options again, choose another --out, or remove that folder"
        )
    return Job(folder, {**job.config, "versions": old.config["versions"]})


def differing(one: Json, other: Json) -> Json:
    """Return the values in which two dictionaries differ, with the values of ``other``."""
    names = [name for name in one | other if one.get(name) != other.get(name)]
    return {name: other.get(name) for name in names}


def _flat(config: Json) -> Json:
    """Return settings and decoding without nesting: {"options lr": value of lr, ...}."""
    flat: Json = {}
    for group, values in {**config["settings"], "decoding": config["decoding"]}.items():
        by_name = values if isinstance(values, dict) else {"": values}
        flat |= {f"{group} {name}".strip(): value for name, value in by_name.items()}
    return flat


def read_job(folder: Path) -> Job:
    """Open an existing run folder; raises UserError for another kind of folder or version."""
    path = folder / "config.json"
    config = read_json(path) if path.is_file() else {}
    if "settings" not in config:  # a bundle has a config.json too, without settings
        problem = "is no run folder: it has no config.json of a training"
        raise UserError(f"{folder} {problem}; give a folder that a training made")
    check_folder_version(folder, config, "choose another --out and train again")
    return Job(folder, config)


def keep_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe keep``."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="finished run folders")
    help_ = "folder that gets a copy of each run without its checkpoints"
    add("--out", type=Path, required=True, metavar="FOLDER", help=help_)


def keep(args: Namespace) -> None:
    """Copy finished runs without checkpoints; UserError before any copy if one has no scores."""
    for folder in args.runs:
        job = read_job(folder)
        if not job.scores.exists() and not any(folder.glob("*/scores.json")):
            advice = "give its training command again to finish it"
            raise UserError(f"{folder} is not finished: it has no scores; {advice}")
    out = output_folder(args.out)
    for folder in args.runs:
        target = out / folder.resolve().name
        if target == folder.resolve():
            raise UserError(f"{target} is the run itself: name another folder")
        if target.exists():  # an earlier command copied this run
            names = [str(path.relative_to(folder)) for path in folder.rglob("*.json")]
            same, *_ = filecmp.cmpfiles(folder, target, names, shallow=False)
            if len(same) < len(names):
                raise UserError(
                    f"{target} exists and has other results: remove it, or name another folder"
                )
        else:
            # ".*": the lock, and temporary files of a killed process
            ignored = shutil.ignore_patterns("*.pt", "checkpoints", ".*")
            with new_folder(target) as copy:
                try:
                    shutil.copytree(folder, copy, ignore=ignored)
                except shutil.Error as error:
                    reason = error.args[0][0][2]  # of the first file that failed
                    raise UserError(f"cannot copy {folder}: {reason}") from error
        say(str(target))
