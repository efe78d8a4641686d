"""What the options make of a recipe, and what is refused before anything is trained."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.experiments import table
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.recipes import FOLDER, Recipe, recipe

GIVEN = ["--data", "d", "--out", "o"]


def chosen(row: str | None, *words: str) -> Recipe:
    parser = argparse.ArgumentParser()
    table.add_arguments(parser)
    return table.chosen_recipe(row, parser.parse_args([*GIVEN, *words]))


def float32(row: str, *words: str) -> Recipe:
    return chosen(row, "--precision", "float32", *words)


def test_a_seed_is_taken_once_however_it_is_written() -> None:
    assert table.seeds("1,01,2") == [1, 2]


def test_options_change_the_recipe() -> None:
    assert float32("12H") == recipe("12h")
    training = float32("base", "--fraction", "0.01").training
    warm_up = training.options["warmup_updates"]
    assert (training.updates, warm_up, training.interval) == (1000, 40, 10)
    assert training.batch_tokens == recipe("base").training.batch_tokens
    assert float32("big", "--fraction", "0.5").training.updates == 150_000
    assert float32("base", "--updates", "50").training.updates == 50
    training = float32("tiny", "--batch-tokens", "4096", "--max-tokens", "2048").training
    assert (training.at_a_time, training.batch_tokens) == (2048, 4096)


def test_a_recipes_own_precision_stays_unless_another_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (FOLDER / "tiny.yaml").read_text()
    path.write_text(text.replace("{user_dir", "{bf16: true, user_dir"))
    for more, expected in (([], "bf16"), (["--precision", "float32"], "float32")):
        mine = chosen(None, "--cpu", "--recipe", str(path), *more)
        assert (mine.row, mine.training.precision) == ("mine", expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--batch-tokens", "32771"],
            "an update of 32,771 tokens in mini-batches of 256 to 4,096",
        ),
        (["--recipe", "nowhere.yaml"], "give a row or --recipe FILE, one of the two"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen("base", *words)


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
        table.check_subset(data, "test")
    table.check_subset(data, "test", "char")
