"""What the options make of a recipe, and what is refused before anything is trained."""

from __future__ import annotations

import argparse
from collections import namedtuple
from pathlib import Path
from typing import cast

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.finetune import run_name
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.prepare.task_folder import TaskFolder
from fairseq_mhe.runs.recipes import FOLDER, Recipe, recipe

Usage = namedtuple("Usage", "total used free")


GIVEN = ["--data", "d", "--out", "o", "--precision", "float32"]


def chosen(row: str, *words: str) -> Recipe:
    parser = argparse.ArgumentParser()
    cells.add_arguments(parser)
    return cells.chosen_recipe(row, parser.parse_args([*GIVEN, *words]))


def test_without_options_it_is_the_recipe() -> None:
    assert chosen("12H") == recipe("12h")


def test_a_seed_and_a_row_are_taken_once_however_they_are_written() -> None:
    assert cells.seeds("1,01,2") == [1, 2]


def test_a_fraction_shortens_the_training_and_its_warm_up() -> None:
    training = chosen("base", "--fraction", "0.01").training
    assert (training.updates, training.options["warmup_updates"], training.interval) == (
        1000,
        40,
        10,
    )
    assert training.batch_tokens == recipe("base").training.batch_tokens
    assert chosen("big", "--updates-fraction", "0.5").training.updates == 150_000
    assert chosen("base", "--updates", "50").training.updates == 50


def test_the_batch_stays_unless_it_is_asked_for() -> None:
    training = chosen("base", "--max-tokens", "1024").training
    assert (training.at_a_time, training.batch_tokens) == (1024, 32768)
    training = chosen("base", "--batch-tokens", "2048").training
    assert (training.at_a_time, training.batch_tokens) == (2048, 2048)
    training = chosen("tiny", "--batch-tokens", "4096", "--max-tokens", "2048").training
    assert (training.at_a_time, training.batch_tokens) == (2048, 4096)


def test_a_recipes_own_precision_stays_unless_another_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        (FOLDER / "tiny.yaml").read_text().replace("{user_dir", "{bf16: true, user_dir")
    )
    parser = argparse.ArgumentParser()
    cells.add_arguments(parser)
    line = [*GIVEN[:4], "--cpu", "--recipe", str(path)]
    for more, expected in (([], "bf16"), (["--precision", "float32"], "float32")):
        found = cells.chosen_recipe(None, parser.parse_args([*line, *more]))
        assert (found.row, found.training.precision) == ("mine", expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fraction", "0"], "--fraction 0 is no share"),
        (["--fraction", "1.5"], r"--fraction 1\.5 is no share"),
        (["--batch-tokens", "32771"], "an update of 32,771 tokens in mini-batches of 256 to 4,096"),
        (["--recipe", "nowhere.yaml"], "give a row or --recipe FILE, one of the two"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen("base", *words)


def test_kinds_are_checked() -> None:
    assert cells.kind("mhe_add") == "mhe_add"
    with pytest.raises(UserError, match="unknown attention 'mhe'; choose of: mha, "):
        cells.kind("mhe")


def test_tensorboard_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells.importlib.util, "find_spec", lambda name: None)
    cells.check_tensorboard(False)
    with pytest.raises(UserError, match="pip install tensorboard"):
        cells.check_tensorboard(True)


def test_a_tokeniser_that_is_missing_is_told_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(tokenize: str) -> None:
        if "mecab" in tokenize:
            raise RuntimeError

    monkeypatch.setattr("fairseq_mhe.runs.scoring.BLEU", missing)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "test.en").touch()
    data = DataFolder(tmp_path, ("en", "ja"))
    with pytest.raises(UserError, match="BLEU by ja-mecab needs a dictionary: pip install"):
        cells.check_subset(data, "test")
    cells.check_subset(data, "test", "char")


def test_a_run_folder_that_one_stands_in_gives_a_fine_tuning_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = argparse.Namespace(task=argparse.Namespace(name="rte"))
    (tmp_path / "a model").mkdir()
    monkeypatch.chdir(tmp_path / "a model")
    assert run_name(Path(), cast(TaskFolder, task), 1) == "a model-rte-seed1"
