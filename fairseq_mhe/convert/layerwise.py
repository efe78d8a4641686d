"""Conversion sublayer by sublayer; what a killed run had finished is not done again."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import Source
from fairseq_mhe.checkpoints.safe_load import save_checkpoint
from fairseq_mhe.common.progress import Board
from fairseq_mhe.common.steps import Steps, only_one
from fairseq_mhe.common.tables import align
from fairseq_mhe.convert.fit import Fitted
from fairseq_mhe.models.build import sublayers
from fairseq_mhe.models.families import build_ours


@dataclass(frozen=True)
class LayerReport:
    """How the conversion of one sublayer went, in ``seconds``, perhaps in an earlier run."""

    name: str
    error: float | None
    iterations: int
    seconds: float


#: Called after each round of an iteration.
Advance = Callable[[], None]
#: Converts (name, old sublayer, new sublayer).
Convert = Callable[[str, Attention, Attention, Advance], Fitted]


def layers_folder(output: Path) -> Path:
    """Where finished sublayers lie until ``output`` is written; then it is to be removed."""
    return output.with_name(f".{output.name}.layers")


def convert_model(
    source: Source,
    options: Mapping[str, Any],
    convert: Convert,
    folder: Path,
    settings: Mapping[str, Any],
) -> tuple[nn.Module, list[LayerReport]]:
    """A model whose attention ``convert`` makes of the source's, and whose rest is the source's.

    Args:
        source: the model to convert.
        options: those of the new model.
        convert: what makes one sublayer.
        folder: where finished sublayers are kept.
        settings: JSON values; all that decides a result beside the old sublayer's own weights,
            what was measured on data included.

    Raises:
        UserError: the options do not fit together, or the folder cannot be written.
    """
    model = build_ours(options, source.task())
    new = {name: module for name, _, module in sublayers(model)}
    attention = tuple(f"{name}." for name in new)
    state = {
        name: value
        for name, value in source.model.state_dict().items()
        if not name.startswith(attention)
    }
    reports: list[LayerReport] = []
    bar = "attention sublayers"
    with only_one(folder), Board(transient=True) as board:
        board.add(bar, len(new))
        for name, _, old in sublayers(source.model):
            rounds = itertools.count(1)

            def advance(name: str = name, rounds: Iterator[int] = rounds) -> None:
                board.update(bar, len(reports), f"{name}, round {next(rounds)}")

            def make(name: str = name, old: Attention = old, tell: Any = advance) -> Fitted:
                return convert(name, old, new[name], tell)

            inputs = {**settings, "weights": _digest(old)}
            made, seconds = _once(Steps(folder), name, inputs, make)
            state |= {f"{name}.{key}": value.float() for key, value in made.parameters.items()}
            reports.append(LayerReport(name, made.error, made.iterations, seconds))
            board.advance(bar)
    model.load_state_dict(state)
    return model.eval(), reports


def _once(
    steps: Steps, name: str, inputs: Mapping[str, Any], make: Callable[[], Fitted]
) -> tuple[Fitted, float]:
    """The result for a sublayer and the seconds it took, from disk where it is there."""
    path = steps.folder / f"{name}.pt"
    try:
        torch.load(path, weights_only=True)
    except Exception:  # whatever is wrong with it, it is made again
        path.unlink(missing_ok=True)
    steps.perform(name, inputs, [path], lambda: save_checkpoint(asdict(make()), path))
    found = Fitted(**torch.load(path, weights_only=True))
    return found, steps.status()["steps"][name]["seconds"]


def _digest(module: Attention) -> str:
    """A hash of a sublayer's parameters."""
    digest = hashlib.sha256()
    for parameter, value in sorted(module.state_dict().items()):
        digest.update(f"{parameter} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()


def table(reports: Sequence[LayerReport]) -> str:
    """Every sublayer's report, under a line that says what its columns are."""
    rows = []
    for report in reports:
        error = "" if report.error is None else f"{report.error:.2e}"
        rows.append((report.name, error, str(report.iterations), f"{report.seconds:.1f}"))
    title = "attention sublayers: relative error of the scores, rounds of least squares, seconds"
    return f"{title}\n\n{align(('sublayer', 'error', 'rounds', 'seconds'), rows, 'markdown')}"
