"""How options change a recipe, and what is refused before anything is trained."""

import argparse
from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.experiments import table
from fairseq_mhe.prepare.data_folder import DataFolder, open_data
from fairseq_mhe.runs.recipes import FOLDER, Recipe, recipe
from tests.fixtures.small_runs import SMALL


def chosen(row: str | None, *words: str) -> Recipe:
    parser = argparse.ArgumentParser()
    table.add_arguments(parser)
    table._add_recipe(parser)
    return table.chosen_recipe(row, parser.parse_args(["--data", "d", "--out", "o", *words]))


def float32(row: str, *words: str) -> Recipe:
    return chosen(row, "--precision", "float32", *words)


def test_options_change_the_recipe(tmp_path: Path) -> None:
    assert float32("12H") == recipe("12h")
    training = float32("base", "--updates", "1000").training
    assert (training.updates, training.options["warmup_updates"]) == (1000, 40)
    assert training.batch_tokens == recipe("base").training.batch_tokens
    training = float32("tiny", "--batch-tokens", "4096", "--max-tokens", "2048").training
    assert (training.mini_batch, training.batch_tokens) == (2048, 4096)
    # A recipe's own precision stays unless an option names another.
    path, text = tmp_path / "mine.yaml", (FOLDER / "tiny.yaml").read_text()
    path.write_text(text.replace("{user_dir", "{bf16: true, user_dir"))
    for more, expected in (([], "bf16"), (["--precision", "float32"], "float32")):
        mine = chosen(None, "--cpu", "--recipe", str(path), *more)
        assert (mine.row, mine.training.precision) == ("mine", expected)


def test_impossible_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "mine.yaml", (FOLDER / "tiny.yaml").read_text()
    path.write_text(text.replace("max_tokens: 1024", "batch_size: 16"))
    with pytest.raises(UserError, match="has batches of 16 examples: leave --batch-tokens and"):
        chosen(None, "--recipe", str(path), "--max-tokens", "512")
    with pytest.raises(UserError, match="is for a language model: use fairseq-hydra-train"):
        chosen(None, "--recipe", str(FOLDER / "roberta_mhe_tiny.yaml"))
    with pytest.raises(UserError, match="give either a row or --recipe FILE"):
        chosen("base", "--recipe", "nowhere.yaml")
    parser = argparse.ArgumentParser()
    table.run_table_arguments(parser)
    with pytest.raises(UserError, match="unknown row ''"):  # not the paper's seven
        table.run_table(parser.parse_args(["--rows", "", "--data", "d", "--out", "o"]))

    def missing(tokenize: str) -> None:
        if "mecab" in tokenize:
            raise RuntimeError

    monkeypatch.setattr("fairseq_mhe.runs.scoring.BLEU", missing)
    data = DataFolder(tmp_path, ("en", "ja"), {"lines": {"test": 1}})
    with pytest.raises(UserError, match="BLEU by ja-mecab needs a dictionary: pip install"):
        table.check_subset(data, argparse.Namespace(subset="test", bleu_tokenizer=None))
    table.check_subset(data, argparse.Namespace(subset="test", bleu_tokenizer="char"))


def test_the_heading_names_deviations_from_the_recipe() -> None:
    data = open_data(SMALL / "data")

    def heading(*rows: str, **changes: int) -> str:
        args = argparse.Namespace(**{"title": "A", "updates": 0, "batch_tokens": 0, **changes})
        return table._title(args, data, list(map(recipe, rows)))

    assert heading("base", "big") == "A, 100,000 to 300,000 updates"
    deviating = "A, 100,000 updates: updates or batches given by options"
    assert heading("base", updates=1) == heading("base", batch_tokens=1) == deviating
