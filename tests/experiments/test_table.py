"""How options change a recipe, and what is refused before anything is trained."""

import shutil
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.common.arguments import Parser, from_options
from fairseq_mhe.common.files import read_json, write_json
from fairseq_mhe.experiments import run_table
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.devices import DeviceOptions, precision
from fairseq_mhe.runs.job import with_precision
from fairseq_mhe.runs.recipe_options import TranslationRecipe
from fairseq_mhe.runs.recipes import FOLDER, Recipe, recipe
from fairseq_mhe.runs.translation import ScoringOptions
from tests.fixtures.refusals import Refused, refuses
from tests.fixtures.runs import open_run, settings
from tests.fixtures.small_runs import SMALL


def chosen(row: str | None, *words: str) -> Recipe:
    parser = Parser()
    run_table.add_arguments(parser)
    args = parser.parse_args(["--out", "o", *words])
    return from_options(TranslationRecipe, args).read(row)


def test_options_change_the_recipe(tmp_path: Path) -> None:
    assert chosen("12H") == recipe("12h")
    training = chosen("base", "--updates", "1000").training
    assert (training.updates, training.options["warmup_updates"]) == (1000, 40)
    assert training.batch_tokens == recipe("base").training.batch_tokens
    training = chosen("tiny", "--batch-tokens", "4096", "--max-tokens", "2048").training
    assert (training.mini_batch, training.batch_tokens) == (2048, 4096)
    words = ["model.dropout=0.5", "--updates", "10", "optimization.lr=[0.5]"]
    options = chosen("tiny", *words).training.options
    assert (options["dropout"], options["lr"], options["max_update"]) == (0.5, [0.5], 10)


def test_devices_share_a_batch_as_the_command_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Printed are the mini-batches that the devices compute, whose product is the batch."""
    words = ["run-table", "--rows", "tiny", "--data", str(SMALL / "data"), "--out", str(tmp_path)]
    cli.main([*words, "--processes", "2", "--finished-only"])
    assert "batches of 1,024 = 512 x 2 x update-freq 1" in "".join(capfd.readouterr())


def test_auto_precision_is_the_recipes_then_the_runs_then_the_machines(tmp_path: Path) -> None:
    """A run that resumes on another machine keeps its precision."""
    training = recipe("tiny").training
    auto, float32 = DeviceOptions(cpu=True), DeviceOptions(cpu=True, precision="float32")
    assert with_precision(training.with_precision("fp16"), tmp_path, auto).precision == "fp16"
    assert with_precision(training.with_precision("fp16"), tmp_path, float32).precision == "float32"
    assert with_precision(training, tmp_path, auto).precision == precision(auto)
    for kept in ("bf16", "float32"):
        run = open_run(tmp_path / kept, settings(bf16=kept == "bf16" or None), {"data": "/d"})
        assert with_precision(training, run.folder, auto).precision == kept


def test_impossible_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [tiny, _self_]\ndataset: {max_tokens: null, batch_size: 16}\n")
    with refuses("16 examples", "--max-tokens"):
        chosen(None, "--recipe", str(path), "--max-tokens", "512")
    with refuses("fairseq-mhe pretrain"):
        chosen(None, "--recipe", str(FOLDER / "roberta_mhe_tiny.yaml"))
    words = ["run-table", "--rows", "", "--data", str(SMALL / "data"), "--out", str(tmp_path)]
    assert "unknown row ''" in refused(*words), "not the paper's seven"
    data = Path(shutil.copytree(SMALL / "data", tmp_path / "data"))
    manifest = read_json(data / "manifest.json")
    del manifest["lines"]["test"]
    write_json(data / "manifest.json", manifest)
    words = ["train", "tiny", "mha", "--data", str(data), "--out", str(tmp_path)]
    assert "mini-batch of 8: give" in refused(*words, "--max-tokens", "8"), "test is not needed"
    assert "--subset" in refused(*words, "--evaluate")

    def missing(tokenize: str) -> None:
        if "mecab" in tokenize:
            raise RuntimeError

    monkeypatch.setattr("fairseq_mhe.runs.scoring.BLEU", missing)
    data = DataFolder(tmp_path, ("en", "ja"), {"lines": {"test": 1}})
    with refuses("ja-mecab"):
        ScoringOptions().check(data)
    ScoringOptions(bleu_tokenizer="char").check(data)
