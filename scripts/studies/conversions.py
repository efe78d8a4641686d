"""Checkpoints that studies convert from a trained model, once, with a report of how it went."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_writable, read_json, sha256, write_json
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.steps import Steps, key
from fairseq_mhe.convert.material import open_material

_STEP, _REPORT = "convert", "conversion.json"


def convert_once(
    folder: Path,
    start: Path,
    model: Path,
    data: Path,
    inputs: Mapping[str, Any],
    action: Callable[..., dict[str, Any]],
) -> None:
    """Convert ``model`` into the checkpoint ``start``, and report in ``folder``; once.

    ``inputs`` are what it depends on beside the model; ``sentences`` of the ``data`` are its
    material. ``action(start, material)`` returns its report as JSON values.

    Raises:
        UserError: the folder's checkpoint is another model's, or by other options. What was trained
            from it began with its very bytes and is refused without them, so that it stays.
    """
    report, made_of = folder / _REPORT, {**inputs, "model": sha256(model)}
    steps = Steps(folder)
    before = steps.status()["steps"].get(_STEP)
    if before and before["key"] != key(made_of):
        raise UserError(
            f"{folder} was converted from another model or by other options: choose another --out"
        )
    check_writable(start.parent)

    def convert() -> None:
        with quiet_fairseq():
            source = open_source(model)
            material = open_material(source, data, inputs["sentences"])
            begun = time.monotonic()
            found = action(start, material)
        write_json(report, {**found, "seconds": round(time.monotonic() - begun, 1)})

    steps.perform(_STEP, made_of, [start, report], convert)


def conversion_report(folder: Path) -> dict[str, Any] | None:
    """How the conversion into a folder went, if there was one."""
    path = folder / _REPORT
    return read_json(path) if path.is_file() else None
