"""Makes fairseq read checkpoints weights-only; importing this module replaces its two functions.

No code in a checkpoint runs, in fairseq's commands, in ours, and in programs that import the
package. A faulty file is named in one line.
"""

import contextlib
import functools
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.file_io import PathManager
from fairseq.logging import meters
from omegaconf import OmegaConf

from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError

_load_ensemble = checkpoint_utils.load_model_ensemble_and_task


def load_checkpoint_to_cpu(
    path: str,
    arg_overrides: Mapping[str, Any] | None = None,
    load_on_all_ranks: bool = False,
) -> dict[str, Any]:
    """Return a checkpoint's state in fairseq's form of today, as its function of this name does.

    ``path``: also an address that fairseq's PathManager knows; ``arg_overrides``: option -> value.
    Raises UserError for a file that `read_checkpoint` refuses.
    """
    overrides = arg_overrides or {}
    with _faults_named([path]):
        # Not on demand: a training overwrites the file from which it has resumed.
        state = read_checkpoint(_local_path(path, load_on_all_ranks), on_demand=False)
        if state.get("args") is not None:
            for name, value in overrides.items():
                setattr(state["args"], name, value)
        if state.get("cfg") is not None:
            state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
            overwrite_args_by_name(state["cfg"], overrides)
        return checkpoint_utils._upgrade_state_dict(state)


@functools.wraps(_load_ensemble)
def load_model_ensemble_and_task(
    filenames: Sequence[str], *args: Any, **kwargs: Any
) -> tuple[Any, ...]:
    """Load models as fairseq does, by `load_checkpoint_to_cpu`; UserError names faulty files."""
    with _faults_named(filenames), warnings.catch_warnings(action="ignore"):
        return _load_ensemble(filenames, *args, **kwargs)


def _local_path(path: str, load_on_all_ranks: bool) -> Path:
    """Return the path of a checkpoint on this machine; copy a remote one anew, as fairseq does."""
    local = PathManager.get_local_path(path)
    if local != path and PathManager.path_requires_pathmanager(path):
        with contextlib.suppress(FileNotFoundError):
            os.remove(local)
        if load_on_all_ranks:
            torch.distributed.barrier()
        local = PathManager.get_local_path(path)
    return Path(local)


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


# Trainings of fairseq 0.8 and before stored their meters as objects.
_METERS = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)
torch.serialization.add_safe_globals(
    [(m, f"fairseq.meters.{m.__name__}") for m in _METERS]
)
checkpoint_utils.load_checkpoint_to_cpu = load_checkpoint_to_cpu
checkpoint_utils.load_model_ensemble_and_task = load_model_ensemble_and_task
