"""The average of checkpoints is their plain mean, and only one model's are averaged."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.average import average_checkpoints
from fairseq_mhe.common.errors import UserError


def save(
    path: Path, weights: dict[str, torch.Tensor], updates: int = 1, **options: Any
) -> Path:
    """A checkpoint as fairseq-train writes it, small."""
    model = {"arch": "transformer_mhe_tiny", "encoder_attention_heads": 4, **options}
    state = {
        "cfg": {"model": argparse.Namespace(**model)},
        "model": weights,
        "optimizer_history": [{"num_updates": updates}],
        "last_optimizer_state": {"state": torch.ones(1000)},
    }
    torch.save(state, path)
    return path


def load(path: Path) -> dict[str, Any]:
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_it_is_the_plain_mean_in_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = [
        torch.randn(5, 3, generator=torch.Generator().manual_seed(i)).to(dtype)
        for i in range(7)
    ]
    paths = [save(tmp_path / f"{i}.pt", {"w": tensor}) for i, tensor in enumerate(tensors)]
    average_checkpoints(paths, tmp_path / "out.pt")
    mean = load(tmp_path / "out.pt")["model"]["w"]
    expected = np.mean([tensor.double().numpy() for tensor in tensors], axis=0).astype(
        np.float32
    )
    assert mean.dtype == torch.float32
    np.testing.assert_array_equal(mean.numpy(), expected)


def test_the_rest_is_the_newest_checkpoints_without_its_optimizer(tmp_path: Path) -> None:
    weights = ({"w": torch.ones(1), "n": torch.tensor(n)} for n in (8, 3))
    newest = save(tmp_path / "b.pt", next(weights), updates=20, dropout=0.2)
    older = save(tmp_path / "a.pt", next(weights), updates=10, dropout=0.1)
    average_checkpoints([newest, older], tmp_path / "out.pt")
    state = load(tmp_path / "out.pt")
    assert state["model"]["n"] == 8
    assert state["optimizer_history"] == [{"num_updates": 20}]
    assert state["cfg"]["model"].dropout == 0.2
    assert "last_optimizer_state" not in state
    assert state["averaged_from"] == ["b.pt", "a.pt"]


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    paths = []
    for i in range(2):
        table = torch.full((100, 100), float(i))
        paths.append(
            save(tmp_path / f"{i}.pt", {"encoder.embed": table, "decoder.embed": table})
        )
    average_checkpoints(paths, tmp_path / "out.pt")
    model = load(tmp_path / "out.pt")["model"]
    assert model["encoder.embed"].data_ptr() == model["decoder.embed"].data_ptr()
    assert torch.equal(model["encoder.embed"], torch.full((100, 100), 0.5))


@pytest.mark.parametrize(
    ("weights", "options", "named"),
    [
        ({"w": torch.ones(3)}, {}, "w is (3,) and (2,)"),
        ({"w": torch.ones(2), "extra": torch.ones(1)}, {}, "extra is (1,) and absent"),
        ({}, {}, "w is absent and (2,)"),
        ({"w": torch.ones(2)}, {"encoder_attention_heads": 8}, "heads is 8 and 4"),
        ({"w": torch.ones(2)}, {"attention": "mha"}, "attention is mha and absent"),
        (
            {"w": torch.ones(2)},
            {"no_scale_embedding": True},
            "no_scale_embedding is True and abs",
        ),
    ],
)
def test_checkpoints_of_different_models_are_refused(
    tmp_path: Path, weights: dict[str, torch.Tensor], options: dict[str, Any], named: str
) -> None:
    first = save(tmp_path / "first.pt", {"w": torch.ones(2)}, updates=2)
    other = save(tmp_path / "other.pt", weights, **options)
    with pytest.raises(UserError) as refused:
        average_checkpoints([first, other], tmp_path / "out.pt")
    assert named in str(refused.value)
    assert str(other) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out.pt").exists()


def folder_of_a_training(folder: Path) -> None:
    """Updates 8 to 12, the last only as checkpoint_last.pt; the best, under both names that fairseq
    gives them, and an average.
    """
    for epoch, updates in ((1, 8), (1, 9), (2, 10), (2, 11)):
        weights = {"w": torch.tensor([float(updates)])}
        save(folder / f"checkpoint_{epoch}_{updates}.pt", weights, updates)
    save(folder / "checkpoint_last.pt", {"w": torch.tensor([12.0])}, 12)
    save(folder / "checkpoint_best.pt", {"w": torch.tensor([3.0])}, 3)
    save(folder / "checkpoint.best_loss_3.1000.pt", {"w": torch.tensor([4.0])}, 4)
    average_checkpoints([folder / "checkpoint_1_8.pt"], folder / "checkpoint_average.pt")


def test_the_command_averages_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of_a_training(tmp_path)
    words = ["--output", str(tmp_path / "out.pt"), "--last", "3", str(tmp_path)]
    assert cli.main(["average", *words]) == 0
    assert load(tmp_path / "out.pt")["model"]["w"].item() == 11.0  # the mean of 10, 11 and 12
    assert "checkpoint_last.pt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--last", "9", "{folder}"], "different updates"),
        (["--last", "2", "{folder}/checkpoint_1_8.pt"], "has no checkpoint"),
        (["--last", "2", "{folder}/empty"], "has no checkpoint"),
        (["{folder}/none.pt"], "does not exist"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    folder_of_a_training(tmp_path)
    (tmp_path / "empty").mkdir()
    words = [word.format(folder=tmp_path) for word in words]
    assert cli.main(["average", "--output", str(tmp_path / "out.pt"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out.pt").exists()
