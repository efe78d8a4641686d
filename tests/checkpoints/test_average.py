"""``average`` writes the plain mean, and only of checkpoints of the same model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.average import average_checkpoints, saved_checkpoints
from fairseq_mhe.checkpoints.inspection import describe, inspect
from tests.fixtures.checkpoints import save as save_model
from tests.fixtures.checkpoints import save_weights as save
from tests.fixtures.models import make_model
from tests.fixtures.refusals import Refused, refuses


def load(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_average_is_the_mean_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    start = torch.randn(5, 3)
    tensors = [(start + 0.1 * torch.randn(5, 3)).to(dtype) for _ in range(7)]
    paths = [save(tmp_path / f"{i}.pt", {"w": tensor}) for i, tensor in enumerate(tensors)]
    average_checkpoints(paths, tmp_path / "out.pt")
    mean = load(tmp_path / "out.pt")["model"]["w"]
    expected = np.mean([tensor.double().numpy() for tensor in tensors], axis=0)
    assert mean.dtype == torch.float32
    np.testing.assert_array_equal(mean.numpy(), expected.astype(np.float32))


def test_all_but_weights_and_optimizer_come_from_the_newest_checkpoint(tmp_path: Path) -> None:
    paths = []
    for name, n in (("b", 8), ("a", 3)):
        table = torch.full((100, 100), float(n))
        weights = {"encoder.embed": table, "decoder.embed": table, "n": torch.tensor(n)}
        paths.append(save(tmp_path / f"{name}.pt", weights, updates=n, attention_dropout=n / 10))
    average_checkpoints(paths, tmp_path / "out.pt")
    state = load(tmp_path / "out.pt")
    assert state["optimizer_history"] == [{"num_updates": 8}]
    assert state["cfg"]["model"].attention_dropout == 0.8
    assert "last_optimizer_state" not in state
    assert state["averaged_from"] == ["b.pt", "a.pt"]
    model = state["model"]
    assert model["n"] == 8
    assert model["encoder.embed"].data_ptr() == model["decoder.embed"].data_ptr(), "tied"
    assert torch.equal(model["encoder.embed"], torch.full((100, 100), 5.5))


WEIGHTS = {"w": torch.ones(2)}


#: Weights and options of a second checkpoint, and what the refusal must name.
DIFFERENT: list[tuple[dict[str, Tensor], dict[str, Any], str]] = [
    ({"w": torch.ones(3)}, {}, "w is (3,) and (2,)"),
    ({**WEIGHTS, "extra": torch.ones(1)}, {}, "extra"),
    ({}, {}, "w is absent"),
    (WEIGHTS, {"encoder_attention_heads": 8}, "heads is 8 and 4"),
    (WEIGHTS, {"no_scale_embedding": True}, "no_scale_embedding"),
]


@pytest.mark.parametrize(("weights", "options", "named"), DIFFERENT)
def test_checkpoints_of_different_models_are_rejected(
    tmp_path: Path, weights: dict[str, Tensor], options: dict[str, Any], named: str
) -> None:
    first = save(tmp_path / "first.pt", WEIGHTS, updates=2)
    other = save(tmp_path / "other.pt", weights, **options)
    with refuses(other, named):
        average_checkpoints([first, other], tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()


def test_checkpoints_of_two_trainings_are_rejected(tmp_path: Path) -> None:
    """Their shapes and options are equal; only the seed differs."""
    first, other = (
        save_model(tmp_path / f"{seed}.pt", make_model(seed=seed, attention="mqa"), attention="mqa")
        for seed in (1, 2)
    )
    with refuses(first, other):
        average_checkpoints([first, other], tmp_path / "out.pt")
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_checkpoint_is_rejected_and_inspect_names_it(
    tmp_path: Path, value: float
) -> None:
    model = make_model(attention="mqa")
    whole = save_model(tmp_path / "whole.pt", model, attention="mqa")
    with torch.no_grad():
        model.encoder.layers[0].fc1.weight[0, 0] = value
    diverged = save_model(tmp_path / "diverged.pt", model, updates=9, attention="mqa")
    for paths in ([whole, diverged], [diverged, whole], [diverged]):
        with refuses(diverged, "encoder.layers.0.fc1.weight"):
            average_checkpoints(paths, tmp_path / "out.pt")
    assert inspect(whole)["not_finite"] == []
    assert inspect(diverged)["not_finite"] == ["encoder.layers.0.fc1.weight"]
    assert any(
        "encoder.layers.0.fc1.weight" in line for line in describe(inspect(diverged)).values()
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A training's folder: updates 8 to 11, checkpoint_last.pt of 12, two best, an average."""
    updates = {f"checkpoint_{epoch}_{n}": n for epoch, n in ((1, 8), (1, 9), (2, 10), (2, 11))}
    updates |= {"checkpoint_last": 12, "checkpoint_best": 3, "checkpoint.best_loss_3.1000": 4}
    for name, number in updates.items():
        save(tmp_path / f"{name}.pt", {"w": torch.tensor([float(number)])}, number)
    average_checkpoints([tmp_path / "checkpoint_1_8.pt"], tmp_path / "checkpoint_average.pt")
    return tmp_path


def test_last_averages_the_newest_ones(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--output", str(folder / "out.pt"), "--last", "3", str(folder)]
    assert cli.main(["average", *words]) == 0
    assert load(folder / "out.pt")["model"]["w"].item() == 11.0  # the mean of 10, 11 and 12
    assert "checkpoint_last.pt" in capsys.readouterr().out
    save(folder / "checkpoint_last.pt", {"w": torch.ones(1)}, 11)
    assert saved_checkpoints(folder)[-1].name == "checkpoint_2_11.pt"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--last 6 {}", "different updates"),
        ("--last 2 {}/checkpoint_1_8.pt", "has no checkpoint"),
        ("--output {0}/checkpoint_last.pt --last 2 {0}", "is an input"),
    ],
)
def test_bad_input_is_one_line(folder: Path, refused: Refused, line: str, message: str) -> None:
    words = [word.format(folder) for word in line.split()]
    assert message in refused("average", "--output", folder / "out.pt", *words)
    assert not (folder / "out.pt").exists()
