"""Conversion sublayer by sublayer: shown as it goes, and what a killed run had finished is not done again."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.fitting import Fitted
from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import atomic_path
from fairseq_mhe.models.build import build_ours, sublayers


@dataclass(frozen=True)
class LayerReport:
    """How the conversion of one sublayer went. ``seconds`` were spent when it was done, perhaps in an earlier run."""

    name: str
    error: float | None
    iterations: int
    seconds: float


#: Convert (name, old sublayer, new sublayer); the last argument is called after each round of an
#: iteration.
Convert = Callable[[str, Attention, Attention, Callable[[], None]], Fitted]


def convert_model(
    source: Source,
    options: Mapping[str, Any],
    convert: Convert,
    store: LayerStore,
    console: Console,
) -> tuple[nn.Module, list[LayerReport]]:
    """A model with ``options`` whose attention ``convert`` makes of the source's, and whose rest is the source's.

    Raises:
        UserError: the options do not fit together, or the store's folder cannot be written.
    """
    model = build_ours(options, source.task())
    new = {name: module for name, _, module in sublayers(model)}
    old = [(name, module) for name, _, module in sublayers(source.model)]
    state = {
        name: value
        for name, value in source.model.state_dict().items()
        if not name.startswith(_prefixes(new))
    }
    reports = []
    with _progress(console, len(old)) as (start, advance, finish):
        for name, module in old:
            start(name)
            begun = time.monotonic()

            def work(name: str = name, module: Attention = module) -> Fitted:
                return convert(name, module, new[name], advance)

            converted, seconds = store.get_or_make(name, module, work, begun)
            state |= {f"{name}.{key}": value.float() for key, value in converted.parameters.items()}
            reports.append(LayerReport(name, converted.error, converted.iterations, seconds))
            finish(reports[-1])
    model.load_state_dict(state)
    return model.eval(), reports


class LayerStore:
    """Finished sublayers on disk, known by what they were made from; removed by ``clear`` when all is done.

    Args:
        folder: where they lie.
        settings: JSON values; all that decides a result beside the old sublayer's own weights.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._settings = json.dumps(settings, sort_keys=True)

    def get_or_make(
        self, name: str, module: Attention, make: Callable[[], Fitted], begun: float
    ) -> tuple[Fitted, float]:
        """The result for a sublayer and the seconds it took, from disk where it is there."""
        path = self._folder / f"{self._key(name, module)}.pt"
        if (found := _read(path)) is not None:
            return found
        converted = make()
        seconds = time.monotonic() - begun
        with atomic_path(path) as temporary:
            try:
                torch.save({**asdict(converted), "seconds": seconds}, temporary)
            except RuntimeError as error:  # torch's writer hides the OSError of a full disk
                raise UserError(f"cannot write {path}: {error}") from None
        return converted, seconds

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _key(self, name: str, module: Attention) -> str:
        digest = hashlib.sha256(f"{name} {self._settings}".encode())
        for parameter, value in sorted(module.state_dict().items()):
            digest.update(f"{parameter} {tuple(value.shape)}".encode())
            digest.update(value.contiguous().numpy().tobytes())
        return digest.hexdigest()


def _read(path: Path) -> tuple[Fitted, float] | None:
    """A stored result, or None where there is none that can be read."""
    try:
        entry = torch.load(path, weights_only=True)
        return Fitted(entry["parameters"], entry["error"], entry["iterations"]), entry["seconds"]
    except Exception:  # whatever is wrong with it, it is made again
        return None


def _prefixes(modules: Mapping[str, nn.Module]) -> tuple[str, ...]:
    return tuple(f"{name}." for name in modules)


@contextmanager
def _progress(
    console: Console, layers: int
) -> Iterator[tuple[Callable[[str], None], Callable[[], None], Callable[[LayerReport], None]]]:
    """Bars on a terminal, a line a sublayer elsewhere; yields what to call at a start, a round and an end."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        task = bars.add_task("attention sublayers", total=layers, note="")
        rounds = 0

        def start(name: str) -> None:
            nonlocal rounds
            rounds = 0
            bars.update(task, note=name)

        def advance() -> None:
            nonlocal rounds
            rounds += 1
            bars.update(task, note=f"round {rounds}")

        def finish(report: LayerReport) -> None:
            bars.advance(task)
            if not console.is_terminal:
                console.print(describe(report), highlight=False)

        yield start, advance, finish


def describe(report: LayerReport) -> str:
    """A sublayer's report in one line."""
    error = "" if report.error is None else f"error {report.error:.2e}, "
    return f"{report.name}: {error}{report.iterations} rounds, {report.seconds:.1f} s"


def table(reports: list[LayerReport]) -> Table:
    """Every sublayer's report."""
    made = Table(
        title="attention sublayers: relative error of the scores, rounds of least squares, seconds"
    )
    for column in ("sublayer", "error", "rounds", "seconds"):
        made.add_column(column, justify="left" if column == "sublayer" else "right")
    for report in reports:
        error = "" if report.error is None else f"{report.error:.2e}"
        made.add_row(report.name, error, str(report.iterations), f"{report.seconds:.1f}")
    return made
