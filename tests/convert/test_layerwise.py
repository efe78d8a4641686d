"""A conversion that was killed goes on with the sublayer it was at."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fairseq_mhe.attention import Attention
from fairseq_mhe.checkpoints.checkpoint import Source, open_source
from fairseq_mhe.convert.change_kind import conversion, convert_kind
from fairseq_mhe.convert.fit import MEAN, Fitted
from fairseq_mhe.convert.layerwise import convert_model, layers_folder
from fairseq_mhe.convert.sentences import open_material
from fairseq_mhe.models.build import sublayers


class Work:
    """Converts to MQA, remembers which sublayers, and is killed at number ``killed_at``."""

    def __init__(self, killed_at: int | None = None) -> None:
        self.done: list[str] = []
        self.killed_at = killed_at

    def __call__(
        self, name: str, old: Attention, new: Attention, advance: Callable[[], None]
    ) -> Fitted:
        if len(self.done) == self.killed_at:
            raise KeyboardInterrupt
        self.done.append(name)
        return Fitted(MEAN["mqa"](new, old.written_out()), error=0.25, iterations=3)


def run(
    source: Source, folder: Path, work: Work, **settings: object
) -> tuple[dict[str, torch.Tensor], list[float]]:
    options = source.other_kind("mqa", bias=False)
    model, reports = convert_model(source, options, work, folder, settings)
    assert [report.error for report in reports] == [0.25] * len(reports)
    return model.state_dict(), [report.seconds for report in reports]


def test_finished_sublayers_are_not_done_again(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    source = make_source(attention="mha", stirred=False)
    names = [name for name, _, _ in sublayers(source.model)]
    first, second = Work(killed_at=4), Work()
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "store", first)
    assert first.done == names[:4]
    state, _ = run(source, tmp_path / "store", second)
    assert second.done == names[4:]
    at_once, _ = run(source, tmp_path / "other", Work())
    assert all(torch.equal(state[name], at_once[name]) for name in at_once)


def test_a_change_of_settings_or_weights_or_a_broken_file_is_seen(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    source = make_source(attention="mha", stirred=False)
    run(source, tmp_path / "store", Work(), dimensions=3)
    for settings, expected in ({"dimensions": 3}, 0), ({"dimensions": 4}, 6):
        work = Work()
        run(source, tmp_path / "store", work, **settings)
        assert len(work.done) == expected
    with torch.no_grad():
        next(sublayers(source.model))[2].q_proj.weight += 1
    work = Work()
    run(source, tmp_path / "store", work, dimensions=3)
    # The settings before were others, so that the other sublayers are of those.
    assert len(work.done) == 6
    with torch.no_grad():
        next(sublayers(source.model))[2].q_proj.weight += 1
    work = Work()
    run(source, tmp_path / "store", work, dimensions=3)
    assert work.done == ["encoder.layers.0.self_attn"]
    for path in (tmp_path / "store").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:100])
    work = Work()
    run(source, tmp_path / "store", work, dimensions=3)
    assert len(work.done) == 6


def test_other_sentences_or_another_model_measure_all_sublayers_anew(
    make_source: Callable[..., Source], tmp_path: Path, data: Path
) -> None:
    """Of as many sentences in the folder of the same name; of a model whose embeddings differ."""
    first = open_material(make_source(attention="mha"), data, 20)
    reads = [{**batch["net_input"]} for batch in first.measured]
    for net_input in reads:
        net_input["src_tokens"] = net_input["src_tokens"].clamp(max=5)
    others = [{**batch, "net_input": r} for batch, r in zip(first.measured, reads, strict=True)]
    source = make_source("moved.pt", attention="mha")
    state = torch.load(source.path)
    state["model"]["encoder.embed_tokens.weight"] *= 2
    torch.save(state, source.path)
    moved = open_material(open_source(source.path), data, 20)
    for other in (replace(first, measured=others), moved):
        conversion(tmp_path / "out.pt", "mqa", first, ["fit"])
        resumed, fresh = (
            conversion(tmp_path / name, "mqa", other, ["fit"]).best.model.state_dict()
            for name in ("out.pt", "fresh.pt")
        )
        assert all(torch.equal(resumed[name], fresh[name]) for name in fresh)
        shutil.rmtree(layers_folder(tmp_path / "fresh.pt"))


def test_a_finished_conversion_leaves_no_sublayers(
    make_source: Callable[..., Source], tmp_path: Path
) -> None:
    """Of both methods, beside what was there before: the source alone."""
    source = make_source(attention="mha", stirred=False)
    output = tmp_path / "out.pt"
    layers_folder(output).mkdir()
    (layers_folder(output) / "left-by-version-0.1.0.pt").touch()
    convert_kind(output, "mqa", open_material(source, None, 1), ("fit", "mean"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.pt", "source.pt"]
