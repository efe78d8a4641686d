"""A run is a folder: what made it (config.json), how far it is (status.json), its results."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json
from fairseq_mhe.common.folder_version import FOLDER_VERSION, check_folder_version
from fairseq_mhe.common.steps import Steps
from fairseq_mhe.common.system import versions
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.recipes import Training
from fairseq_mhe.runs.resuming import LAST, check_unclaimed

#: What to do with a folder of another version.
TRAIN_AGAIN = "choose another --out and train again, or use that version"


@dataclass(frozen=True)
class Job:
    """A run folder and the content of its config.json.

    Its files: ``log``, all that fairseq-train printed; ``checkpoints``, fairseq-train's --save-dir;
    ``metrics``, the learning curve and the speed; ``model``, the averaged checkpoint, which
    translates; ``counts``, the model's parameters and cache; ``last``, the model after its last
    update; ``scores``, what a language model's quality is.
    """

    folder: Path
    config: dict[str, Any]

    def keep(self) -> None:
        """Write config.json: the folder is this run's from now on."""
        write_json(self.folder / "config.json", self.config)

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides which model comes out: row, attention, seed, data, fairseq's options."""
        return self.config["settings"]

    @property
    def row(self) -> str:
        """The model's size."""
        return self.settings["row"]

    @property
    def kind(self) -> str:
        """The kind of attention; of a mixed model, each place's."""
        return kind_name(self.settings["attention"])

    @property
    def seed(self) -> int:
        """The random seed."""
        return self.settings["seed"]

    @property
    def training(self) -> Training:
        """How it is trained."""
        return Training(self.settings["options"])

    @property
    def decoding(self) -> Decoding:
        """How it translates."""
        return Decoding(**self.config["decoding"])

    def place(self, name: str) -> Path:
        """Where its "data" or "start" lay."""
        return Path(self.config["surroundings"][name])

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def steps(self) -> Steps:
        """What was done in the folder."""
        return Steps(self.folder)

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.json"

    @property
    def model(self) -> Path:
        return self.folder / "model.pt"

    @property
    def last(self) -> Path:
        return self.checkpoints / LAST

    @property
    def scores(self) -> Path:
        return self.folder / "scores.json"

    @property
    def counts(self) -> Path:
        return self.folder / "counts.json"

    def subset(self, name: str) -> Path:
        """The folder of a test set's translations and scores."""
        return self.folder / name

    def key(self, step: str) -> str:
        """What a finished step's result was made from, for the steps after it.

        Raises:
            UserError: it is not finished.
        """
        found = self.steps.status()["steps"].get(step)
        if found is None:
            raise self.unfinished(f"step {step!r} in its status.json")
        return str(found["key"])

    def unfinished(self, missing: str) -> UserError:
        """The error of what needs a finished run, for a folder where something is ``missing``."""
        return UserError(
            f"{self.folder} is not finished: it has no {missing}; run the command that made it "
            "again, which goes on from where it was"
        )


def run_name(row: str, attention: Mapping[str, str], seed: int) -> str:
    """The name of a run's folder."""
    return f"{row}-{kind_name(attention)}-seed{seed}"


def kind_name(attention: Mapping[str, str]) -> str:
    """One name for the kinds at all places: the kind, or the three with dashes between."""
    kinds = [attention[place] for place in PLACES if place in attention]
    return kinds[0] if len(set(kinds)) == 1 else "-".join(kinds)


def settings_of(
    row: str, attention: Mapping[str, str], seed: int, training: Training, data: Any, **facts: Any
) -> dict[str, Any]:
    """What decides which model comes out; runs of equal settings are the same, whoever made them.

    ``attention``: place -> kind; ``data``: the identity of a data folder; ``facts``: further JSON
    values. "options" are fairseq-train's, by name.
    """
    one = len(set(attention.values())) == 1
    kinds = {PLACES[place]: kind for place, kind in attention.items()}
    kinds = {"attention": kind_name(attention)} if one else kinds
    options = {**training.options, **kinds, "seed": seed}
    settings = {"row": row, "attention": dict(attention), "seed": seed, "data": data}
    return {**settings, **facts, "options": options}


def plan_job(
    folder: Path,
    settings: Mapping[str, Any],
    surroundings: Mapping[str, Any],
    decoding: Decoding | None = None,
) -> Job:
    """Open the run folder, or plan a new one; refuse a folder with other settings.

    A new run is not written until its work begins (`Job.keep`), so that a command that is refused
    leaves nothing that the next one has to fit.

    ``surroundings``: what may change from start to start: where the data and a start lie.
    ``decoding``: how the model translates, if it does.

    Raises:
        UserError: the folder has other settings, is of another version, or has checkpoints and no
            config.json.
    """
    path = folder / "config.json"
    changing = {"surroundings": dict(surroundings), "decoding": decoding and asdict(decoding)}
    wanted = json.loads(json.dumps({"settings": settings, **changing}))
    if path.exists():
        config = _read_config(folder)
        check_same_settings(folder, config["settings"], wanted["settings"])
        run = Job(folder, {**config, **wanted})
        if run.config != config:
            run.keep()
        return run
    check_unclaimed(folder)
    return Job(folder, {"folder_version": FOLDER_VERSION, **wanted, "versions": versions()})


def read_job(folder: Path) -> Job:
    """A run folder that exists.

    Raises:
        UserError: it is no run folder, or of another version.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is no run folder: it has no config.json")
    return Job(folder, _read_config(folder))


def _read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = read_json(folder / "config.json")
    check_folder_version(folder, config, TRAIN_AGAIN)
    return config


def check_same_settings(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """See that a run folder has the settings that a command asks for.

    Raises:
        UserError: some settings differ; the line names each with both values.
    """
    if differences := _differences(old, new):
        raise UserError(
            f"{folder} has other settings ({'; '.join(differences)}): "
            "give the same options again, choose another --out, or remove that folder"
        )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings that differ, each as "name: old value, now new value"."""
    differences = []
    for name in dict.fromkeys([*old, *new]):
        before, now = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            differences += _differences(before, now, f"{prefix}{name} ")
        elif before != now:
            differences.append(f"{prefix}{name}: {before}, now {now}")
    return differences
