"""``fairseq-mhe keep``: finished runs without their models: enough to make their tables again."""

import argparse
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path, new_folder, output_folder, read_json, sha256
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.steps import Steps
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs import generation, pipeline
from fairseq_mhe.runs.run import Run, read_run

#: What is kept of a run and of each of its translated data sets. No models, no logs, and of the
#: corpus no text: that may not be ours to pass on, and is put back from a data folder.
_OF_RUN = ("config.json", "status.json", "metrics.json", "counts.json")
_OF_SUBSET = (
    *("hypotheses.txt", "hypotheses.tokens.txt", "generation.json"),
    *("scores.json", "comet.json"),
)
#: The same of a language model's run.
_OF_LANGUAGE_RUN = ("config.json", "status.json", "scores.json")


def keep(run: Run, out: Path) -> Path:
    """Copy what tables need of a finished run into the folder of its name in ``out``.

    Raises:
        UserError: the run has no scores, or another of this name is there: of other settings, or
            trained at another time.
    """
    copied = [*_OF_RUN, *(f"{s}/{name}" for s in _scored_subsets(run) for name in _OF_SUBSET)]
    return _copied(run.folder, copied, out / run.name)


def keep_language_run(run: Path, out: Path) -> Path:
    """Copy what `nlu-table --finished-only` needs of a scored run folder, as `keep` does.

    Raises:
        UserError: another run of this name is there.
    """
    return _copied(run, _OF_LANGUAGE_RUN, out / run.name)


def _copied(source: Path, names: Iterable[str], target: Path) -> Path:
    """Copy what ``target`` has not, or has otherwise."""
    if target.exists():
        if _settings(target) != _settings(source):
            raise UserError(f"{target} is there and of other settings: name another --out")
        if _training(target) != _training(source):
            raise UserError(f"{target} is there and of another training: name another --out")
        for name in names:
            if (source / name).exists() and _content(source / name) != _content(target / name):
                with atomic_path(target / name) as temporary:
                    shutil.copyfile(source / name, temporary)
        return target
    with new_folder(target) as folder:
        for name in names:
            if (source / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, folder / name)
    return target


def _settings(run: Path) -> Any:
    """What made a run: of a language model all that config.json says but for versions."""
    config = read_json(run / "config.json")
    return config.get("settings", {**config, "versions": None})


def _training(run: Path) -> Any:
    """When a run was trained: two trainings by the same settings end in other numbers."""
    return Steps(run).status()["steps"].get("train")


def _content(path: Path) -> str | None:
    return sha256(path) if path.exists() else None


def checksums(run: Run, subset: str) -> dict[str, str | None]:
    """Of all that a table is made of."""
    names = (*_OF_RUN, *(f"{subset}/{name}" for name in _OF_SUBSET))
    return {name: _content(run.folder / name) for name in names if name != "status.json"}


def _is_language_run(folder: Path) -> bool:
    path = folder / "config.json"
    if not path.exists() or "recipe" not in read_json(path):
        return False
    if not (folder / "scores.json").exists():
        raise UserError(f"{folder} is not finished: it has no scores; give its command again")
    return True


def _scored_subsets(run: Run) -> list[str]:
    words = [step.split(maxsplit=1) for step in run.steps.status()["steps"]]
    found = [w[1] for w in words if w[0] == "score" and pipeline.scored(run, w[1])]
    if not found:
        raise run.unfinished("scores")
    return found


def complete(run: Run, data: DataFolder, subset: str) -> None:
    """Put the corpus' text beside the hypotheses of a run that was kept without it.

    ``data``: the folder that the run was made on, as its settings' fingerprint says.
    """
    folder = run.subset(subset)
    names = ["sources", "references"]
    if (folder / "hypotheses.tokens.txt").exists():
        names.append("references.tokens")
    missing = [name for name in names if not (folder / f"{name}.txt").exists()]
    if missing:
        texts = generation.corpus_texts(data, subset)
        for name in missing:
            generation.write_lines(folder / f"{name}.txt", texts[name])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe keep``."""
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="finished run folders")
    told = "folder that gets one for each run, with its scores, curves and translations"
    add("--out", type=Path, required=True, metavar="FOLDER", help=told)


def run(args: argparse.Namespace) -> None:
    """Keep the runs, and none of them where one is not finished."""
    folders = list(dict.fromkeys(folder.resolve() for folder in args.runs))
    names: dict[str, Path] = {}
    for folder in folders:
        if (first := names.setdefault(folder.name, folder)) != folder:
            target = args.out / folder.name
            raise UserError(f"{first} and {folder} would both be kept as {target}: keep them apart")
    language = [folder for folder in folders if _is_language_run(folder)]
    found = [read_run(folder) for folder in folders if folder not in language]
    for each in found:
        _scored_subsets(each)
    out = output_folder(args.out)
    for each in found:
        say(str(keep(each, out)))
    for folder in language:
        say(str(keep_language_run(folder, out)))
