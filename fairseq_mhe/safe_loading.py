"""Makes fairseq's loading of models safe; importing this module replaces three of its functions.

No code in a checkpoint runs, and no archive writes outside its folder: in fairseq's commands, in
ours, and in programs that import the package. A faulty file is named in one line.
"""

import ast
import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, file_utils
from fairseq.file_io import PathManager
from fairseq.logging import meters

from fairseq_mhe.common.archives import extract
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import new_folder, sha256

_load_checkpoint = checkpoint_utils.load_checkpoint_to_cpu
_load_ensemble = checkpoint_utils.load_model_ensemble_and_task


@functools.wraps(_load_checkpoint)
def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Load a checkpoint as fairseq does; UserError for a file that `read_checkpoint` refuses."""
    with _faults_named([path]):
        read_checkpoint(Path(PathManager.get_local_path(path)))  # names what is wrong
        return _load_checkpoint(path, *args, **kwargs)


@functools.wraps(_load_ensemble)
def load_model_ensemble_and_task(
    filenames: Sequence[str], *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """Load models as fairseq does, by `load_checkpoint_to_cpu`; UserError names faulty files."""
    with (
        _faults_named(filenames),
        literals_only(),
        warnings.catch_warnings(action="ignore"),
    ):
        return _load_ensemble(filenames, *args, **kwargs)


def load_archive_file(archive_file: str) -> str:
    """Return the folder of a model: a folder itself, or what an archive or its URL holds.

    ``TransformerModel.from_pretrained`` calls it. It extracts each archive once, to fairseq's cache
    of downloads; fairseq's own function replaces the archive by the folder. Raises UserError for an
    archive that cannot be read, or that has links or members outside its folder.
    """
    try:
        path = Path(file_utils.cached_path(archive_file))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot load {archive_file}: {error}") from None
    if path.is_dir():
        return str(path)
    cache = Path(file_utils.PYTORCH_FAIRSEQ_CACHE).expanduser()
    folder = cache / f"{path.name}-{sha256(path)[:16]}"
    if not folder.is_dir():
        with new_folder(folder) as part:
            part.mkdir()
            extract(path, part)
    entries = list(folder.iterdir())
    only = entries[0] if len(entries) == 1 else folder
    return str(only if only.is_dir() else folder)


@contextlib.contextmanager
def _faults_named(paths: Sequence[object]) -> Iterator[None]:
    """Turn an exception into one line that names the files: fairseq checks no option or weight."""
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, (UserError, OSError)) else repr(error)
        if not any(str(path) in why for path in paths):
            why = f"cannot load {', '.join(map(str, paths))}: {why}"
        raise UserError(why) from error


_lock = threading.RLock()


@contextlib.contextmanager
def literals_only() -> Iterator[None]:
    """Keep fairseq from running options of a checkpoint as code while a model is built."""
    with _lock:
        changed = evaluate_literals_only()
        try:
            yield
        finally:
            for namespace in changed:
                del namespace["eval"]


def evaluate_literals_only() -> list[dict[str, Any]]:
    """Let all modules of fairseq, which call eval(), evaluate literals only.

    Returns the namespaces that it has changed: those without a function ``eval`` of their own.
    """
    changed = []
    for module in list(sys.modules.values()):
        specification = getattr(module, "__spec__", None)  # has the name of __main__, too
        name = getattr(specification, "name", "")
        if name.startswith(("fairseq.", "fairseq_cli.")) and "eval" not in vars(module):
            vars(module)["eval"] = _evaluate
            changed.append(vars(module))
    return changed


def _evaluate(text: str) -> Any:
    """Return the value of a `_literal` without running code; it can go with fairseq's ``eval``."""
    try:
        return _literal(ast.parse(text.lstrip(), mode="eval").body)
    except Exception:  # its type depends on the text
        raise UserError(f"{text!r:.60} is not a number, list or other literal") from None


def _literal(node: ast.expr) -> Any:
    """Return a literal, or a sum or product of them: fconv's layers are "[(512, 3)] * 20"."""
    if isinstance(node, ast.BinOp):
        left = _literal(node.left)
        right = _literal(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Mult):
            return left * right
    return ast.literal_eval(node)


# Trainings of fairseq 0.8 and before stored their meters as objects.
_METERS = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)
torch.serialization.add_safe_globals(
    [(m, f"fairseq.meters.{m.__name__}") for m in _METERS]
)
checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task
file_utils.load_archive_file = load_archive_file
