"""One training and its folder: config.json says what made it, the other files are its results."""

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
from fairseq_mhe.runs.recipes import Training

#: What fairseq calls the newest checkpoint.
LAST = "checkpoint_last.pt"


def _place(*names: str) -> Any:
    return property(lambda job: job.folder.joinpath(*names))


def _setting(name: str) -> Any:
    return property(lambda job: job.settings[name])


@dataclass(frozen=True)
class Job:
    """A run folder and its config.json. A result that exists is done.

    ``settings`` decide which model comes out; their "options" are fairseq-train's by name.
    """

    folder: Path
    config: Json

    log = _place("train.log")  # all that fairseq-train printed
    checkpoints = _place("checkpoints")  # fairseq-train's --save-dir
    last = _place("checkpoints", LAST)  # the model after its last update
    # Learning curve and speed, when the training has ended.
    metrics = _place("metrics.json")
    model = _place("model.pt")  # the averaged checkpoint, which translates
    counts = _place("counts.json")  # its parameters and cache
    scores = _place("scores.json")  # a language model's
    row = _setting("row")  # the model's size
    seed = _setting("seed")

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def settings(self) -> Json:
        return self.config["settings"]

    @property
    def kind(self) -> str:
        """The kind of attention; of a mixed model, each place's."""
        return kind_name(self.settings["attention"])

    @property
    def training(self) -> Training:
        return Training(self.settings["options"])

    @property
    def decoding(self) -> Decoding:
        return Decoding(**self.config["decoding"])

    def write_config(self) -> None:
        """Write config.json: the folder is this job's from now on."""
        write_json(self.folder / "config.json", self.config)

    def input_path(self, name: str) -> Path:
        """Where its "data" or "start" lay."""
        return Path(self.config["surroundings"][name])

    def open_data(self, moved: Path | None = None) -> DataFolder:
        """Its parallel text, maybe ``moved``; UserError where that is missing or another."""
        folder = moved or self.input_path("data")
        advice = "give its place by --data"
        if not folder.exists():
            raise UserError(f"{folder}, the data of {self.folder}, is missing: {advice}")
        data = open_data(folder)
        if data.fingerprint != self.settings["data"]["fingerprint"]:
            raise UserError(f"{folder} is not the data of {self.folder}: {advice}")
        return data

    def subset(self, name: str) -> Path:
        """The folder of a test set's translations and scores."""
        return self.folder / name

    def unfinished(self, missing: str) -> UserError:
        """The error where a finished job of translation is needed."""
        if self.scores.exists():
            advice = "give the run folder of a translation model"
            return UserError(f"{self.folder} is a language model: {advice}")
        return UserError(
            f"{self.folder} is not finished: it has no {missing}; run the same training command "
            "again, which resumes, or fairseq-mhe evaluate for a data set's scores"
        )


def kind_name(attention: Mapping[str, str]) -> str:
    """One name for the kinds at all places: the kind, or those in order with dashes between."""
    kinds = list(attention.values())
    return kinds[0] if len(set(kinds)) == 1 else "-".join(kinds)


def settings_of(
    row: str,
    attention: Mapping[str, str],
    seed: int,
    training: Training,
    data: Any,
    **facts: Any,
) -> Json:
    """What decides which model comes out; ``attention``: place -> kind; ``facts``: JSON values."""
    kinds = {PLACES[place]: kind for place, kind in attention.items()}
    if len(set(attention.values())) == 1:
        kinds = {"attention": kind_name(attention)}
    options = {**training.options, **kinds, "seed": seed}
    settings = {"row": row, "attention": dict(attention), "seed": seed, "data": data}
    return {**settings, **facts, "options": options}


def plan_job(
    folder: Path, settings: Json, surroundings: Json, decoding: Decoding | None = None
) -> Job:
    """Open the run folder, or plan a new one; nothing is written. UserError for other settings.

    ``surroundings``: where the data and a start lie, which may change from start to start.
    """
    config = {
        "folder_version": FOLDER_VERSION,
        "settings": settings,
        "surroundings": surroundings,
        "decoding": decoding and asdict(decoding),
        "versions": versions(),
    }
    job = Job(folder, plain(config))
    if not (folder / "config.json").exists():
        return job
    old = read_job(folder)
    before = _flat(old.config)
    now = _flat(job.config)
    differences = []
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            differences.append(f"{name}: {before.get(name)}, now {now.get(name)}")
    if differences:
        raise UserError(
            f"{folder} has other settings ({'; '.join(differences)}): "
            "give the same options again, choose another --out, or remove that folder"
        )
    return Job(folder, {**job.config, "versions": old.config["versions"]})


def _flat(config: Json) -> Json:
    """What must stay the same, without nesting: "options lr" -> its value."""
    flat: Json = {}
    for group, values in {**config["settings"], "decoding": config["decoding"]}.items():
        named = values if isinstance(values, dict) else {"": values}
        flat |= {f"{group} {name}".strip(): value for name, value in named.items()}
    return flat


def read_job(folder: Path) -> Job:
    """A run folder that exists; raises UserError for another folder or version."""
    path = folder / "config.json"
    config = read_json(path) if path.is_file() else {}
    if "settings" not in config:  # bundles have a config.json, too
        raise UserError(f"{folder} is no run folder: it has no config.json of a training")
    check_folder_version(folder, config, "choose another --out and train again")
    return Job(folder, config)


def keep_arguments(parser: ArgumentParser) -> None:
    """Options of ``fairseq-mhe keep``."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="finished run folders")
    help_ = "folder that gets a copy of each run without its checkpoints"
    add("--out", type=Path, required=True, metavar="FOLDER", help=help_)


def keep(args: Namespace) -> None:
    """Copy finished runs without checkpoints, unless done; none of them if one has no scores."""
    for folder in args.runs:
        job = read_job(folder)
        if not job.scores.exists() and not any(folder.glob("*/scores.json")):
            raise job.unfinished("scores")
    out = output_folder(args.out)
    for folder in args.runs:
        target = out / folder.resolve().name
        if target.exists():
            names = [str(path.relative_to(folder)) for path in folder.rglob("*.json")]
            same, *_ = filecmp.cmpfiles(folder, target, names, shallow=False)
            if len(same) < len(names):
                raise UserError(
                    f"{target} exists and has other results: remove it, or name another folder"
                )
        else:
            without = shutil.ignore_patterns("*.pt", "checkpoints", ".*")  # hidden: locks
            with new_folder(target) as copy:
                try:
                    shutil.copytree(folder, copy, ignore=without)
                except shutil.Error as error:  # of many files
                    _, _, reason = error.args[0][0]
                    raise UserError(f"cannot keep {folder}: {reason}") from error
        say(str(target))
