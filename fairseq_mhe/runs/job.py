"""One training and its run folder: config.json has the settings, the other files the results."""

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
    read_json,
    write_json,
    write_text,
)
from fairseq_mhe.common.system import machine, versions
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.prepare.manifest import MANIFEST, file_hashes, read_manifest
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.recipe_yaml import as_recipe
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

    @property
    def translates(self) -> bool:
        """Whether the model is one of translation, not a language model."""
        return self.config["decoding"] is not None

    def write_config(self, command: str = "", gpu: bool = False) -> None:
        """Write config.json and recipe.yaml, which together repeat the run.

        They reserve the folder for these settings. ``command``: the command that trains; ``gpu``:
        whether on a GPU. A resumed run keeps the facts of its first start.
        """
        facts: Json = {
            "command": command,
            "trained_on": machine("cuda" if gpu else "cpu"),
        }
        if (self.input_path("data") / MANIFEST).is_file():
            facts["checksums"] = file_hashes(read_manifest(self.input_path("data")))
        decoding = self.decoding if self.translates else None
        head = f"# {self.kind}, seed {self.seed}: the whole recipe of {self.name}.\n"
        recipe = head + as_recipe(self.training, decoding)
        write_text(self.folder / "recipe.yaml", recipe)
        write_json(self.folder / "config.json", {**facts, **self.config})

    def input_path(self, name: str) -> Path:
        """Return where the "data" or the "start" checkpoint lay when the job was planned."""
        return Path(self.config["surroundings"][name])

    def open_data(self, moved: Path | None = None) -> DataFolder:
        """Open the parallel text, at ``moved`` if given; UserError if it is missing or differs."""
        if not self.translates:
            raise self.unfinished("translations")
        folder = moved or self.input_path("data")
        advice = "give its path by --data"
        if not folder.exists():
            raise UserError(f"{folder}, the data of {self.folder}, is missing: {advice}")
        data = open_data(folder)
        self.check_data(data, folder)
        return data

    def check_data(self, data: DataFolder, folder: Path) -> None:
        """Raise UserError if ``data``, opened at ``folder``, is not what the job is trained on."""
        if data.fingerprint != self.settings["data"]["fingerprint"]:
            problem = f"{folder} is not the data of {self.folder}"
            raise UserError(f"{problem}: give its path by --data")

    def unfinished(self, missing: str) -> UserError:
        """Return the error of a command that needs the file ``missing`` of a translation run."""
        if not self.translates:
            problem = "is a language model's run, which pretrain or finetune scores"
            return UserError(f"{self.folder} {problem}: give one of translation")
        has_weights = self.model.exists() or self.checkpoints.exists()
        if self.metrics.exists() and not has_weights:
            return UserError(
                f"{self.folder} has no model.pt and no checkpoints to average (a copy may leave "
                "them out): use the original run folder, or train in another --out"
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
    return Job(folder, {**old.config, "surroundings": job.config["surroundings"]})


def with_precision(training: Training, folder: Path, options: DeviceOptions) -> Training:
    """Return the training in the precision of the options.

    "auto" keeps the recipe's bf16 or fp16, then the precision of a run that ``folder`` already
    holds, so that it resumes on another machine; a new run gets the fastest of this machine.
    """
    if options.precision == "auto":
        if training.precision != "float32":
            return training
        if (folder / "config.json").is_file():
            return training.with_precision(read_job(folder).training.precision)
    return training.with_precision(devices.precision(options))


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
