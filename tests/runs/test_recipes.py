"""Recipes give recorded command lines; fairseq-train and fairseq-hydra-train read the same options;
an update is the same on any number of devices.
"""

import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from fairseq_mhe import cli
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.runs.processes import OWN_USER_DIR
from fairseq_mhe.runs.recipes import ALL_NAMES, FOLDER, NAMES, read_recipe, recipe
from tests.fixtures.processes import hydra_quoted
from tests.fixtures.refusals import refuses
from tests.fixtures.runs import TRAINING

RECIPES = {name: recipe(name, ALL_NAMES) for name in ALL_NAMES}
#: "row train" or "row generate" -> fairseq's arguments in float32, which a recipe must give.
_LINES = Path(__file__).with_name("recorded_words.txt").read_text().splitlines()
RECORDED = dict(line.split(": ", 1) for line in _LINES)


def parsed(words: list[str]) -> dict[str, Any]:
    """Return the options that fairseq-train reads from a command line."""
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *words])
    return vars(args)


@pytest.mark.parametrize("row", RECIPES)
def test_a_recipe_gives_the_recorded_command_line(row: str) -> None:
    training = RECIPES[row].training
    recorded = parsed(shlex.split(RECORDED[f"{row} train"]))
    assert parsed(training.words()) == recorded
    changed = {"bf16": True, "optimizer": "adam_fused"}
    changed["criterion"] = f"{recorded['criterion']}_by_rows"
    assert parsed(training.with_precision("bf16").words()) == recorded | changed
    if row in NAMES:
        generate = shlex.split(RECORDED[f"{row} generate"])
        assert as_words(asdict(RECIPES[row].decoding)) == generate


def test_recipe_prints_command_line_and_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["recipe", "roberta_mhe_tiny"]) == 0
    program, data, *words = shlex.split(capsys.readouterr().out)
    assert (program, data) == ("fairseq-train", "DATA/bin")
    assert set(RECIPES["roberta_mhe_tiny"].training.words()) <= set(words)
    assert cli.main(["recipe", "tiny", "--yaml"]) == 0
    copy = tmp_path / "tiny.yaml"
    copy.write_text(capsys.readouterr().out)
    assert read_recipe(copy) == RECIPES["tiny"]
    assert cli.main(["recipe", "tiny", "optimization.lr=[0.5]"]) == 0
    assert " --lr 0.5 " in capsys.readouterr().out


def composed_by_hydra(*words: str) -> Any:
    """Return the configuration of fairseq-hydra-train with these words."""
    hydra_init()
    folders = ["hydra.searchpath=[" + hydra_quoted(f"file://{FOLDER.parent}") + "]"]
    if any(word.startswith("hydra.searchpath") for word in words):
        folders = []
    with initialize_config_module("fairseq.config", version_base="1.1"):
        config = compose("config", [*folders, "task.data=data", *words])
    add_defaults(config)
    return OmegaConf.to_container(config, resolve=True)


@pytest.mark.parametrize("row", RECIPES)
def test_fairseq_hydra_train_reads_the_same_options(row: str) -> None:
    """Every group of fairseq's configuration is equal; test_own_parts.py trains with both."""
    read = parsed(RECIPES[row].training.words())
    # fairseq itself converts it to a float.
    read["total_num_update"] = float(read.get("total_num_update") or 0)
    plain = composed_by_hydra(f"+recipes={row}")
    assert plain["checkpoint"].pop("save_dir").startswith("runs/hydra/")
    for group in ("task", "criterion", "optimizer", "lr_scheduler"):
        assert read[group] == plain[group].pop("_name")
    plain["model"]["arch"] = plain["model"].pop("_name")
    groups = "task criterion optimizer lr_scheduler optimization dataset checkpoint model"
    for group in groups.split():
        for name, value in plain[group].items():
            if name != "_name":
                assert read[name] == value, f"{group}.{name}"


def test_a_shorter_training_scales_warm_up_and_intervals() -> None:
    short = TRAINING.shortened(20)
    scaled = {"max_update": 20, "total_num_update": 20, "warmup_updates": 2}
    scaled |= {"save_interval_updates": 5, "validate_interval_updates": 5}
    assert short == TRAINING.changed(**scaled)
    assert TRAINING.shortened(40) == TRAINING
    assert TRAINING.shortened(1).options["save_interval_updates"] == 1
    off = {"save_interval_updates": 0, "warmup_updates": 0, "patience": -1}  # fairseq's defaults
    written = TRAINING.changed(**off, total_num_update=100)  # the learning rate ends above 0
    assert (written.shortened(40), written.average) == (written, 5)  # all are kept
    assert written.shortened(20) == short.changed(**off, total_num_update=50)
    assert [RECIPES[row].training.average for row in ("base", "big")] == [5, 20]  # Vaswani et al.
    schedule = {"lr_period_updates": 20, "lr_deacy_period": 10}
    schedule |= {"warmup_steps": 6, "hold_steps": 8, "decay_steps": 4}
    halves = {name: count // 2 for name, count in schedule.items()}
    assert TRAINING.changed(**schedule).shortened(20) == short.changed(**halves)
    whole_period = {"lr_period_updates": -1}  # cosine's default
    assert TRAINING.changed(**whole_period).shortened(20) == short.changed(**whole_period)
    patient = RECIPES["multi30k"].training  # patience may end it before its last update
    assert patient.shortened(2500) == patient.changed(max_update=2500)
    for count, average in {None: 5, -1: 5, 1: 1, 11: 10}.items():  # checkpoints kept -> averaged
        assert TRAINING.changed(keep_interval_updates=count).average == average
        assert patient.changed(keep_last_epochs=count).average == average


@pytest.mark.parametrize(
    ("row", "devices", "size", "update_freq"),
    [("base", 1, 4096, 8), ("base", 16, 2048, 1), ("roberta_mhe_base", 4, 16, 32)],
)
def test_the_batch_is_the_same_on_any_number_of_devices(
    row: str, devices: int, size: int, update_freq: int
) -> None:
    training = RECIPES[row].training
    assert list(training.shared_by(devices).values()) == [size, [update_freq]]
    assert size * devices * update_freq == training.batch_tokens
    words = training.words(devices)
    assert words[words.index("--update-freq") + 1] == str(update_freq)


def test_a_limit_of_examples_shrinks_with_the_mini_batch() -> None:
    """Else two devices would see twice as many short sentences in an update."""
    training = TRAINING.changed(max_tokens=512, update_freq=[1], batch_size=40)
    assert training.shared_by(1) == {"max_tokens": 512, "update_freq": [1], "batch_size": 40}
    assert training.shared_by(2) == {"max_tokens": 256, "update_freq": [1], "batch_size": 20}
    with refuses("512", "of 2 x "):
        training.changed(batch_size=41).words(2)


def test_mini_batches_are_smaller_if_need_be_and_keep_the_batch() -> None:
    base = RECIPES["base"].training
    training = base.batched(32768, 1024)
    assert (training.mini_batch, training.batch_tokens) == (1024, 32768)
    assert base.batched(largest=5000).mini_batch == 4096
    assert base.batched(200).options["update_freq"] == [1]
    for batch, largest in ((32771, None), (1000, 300), (1024, 40)):
        with refuses(f"{batch:,}", "max_tokens"):
            base.batched(batch, largest)
    for row, devices in (("base", 3), ("tiny", 8), ("roberta_mhe_tiny", 3)):
        with refuses(f"of {devices} x "):
            RECIPES[row].training.words(devices)


def test_a_users_recipe_may_hold_any_option_of_fairseq(tmp_path: Path) -> None:
    path = tmp_path / "Mine.yaml"
    text = "model: {_name: transformer_mhe_tiny, dropout: 0.2, encoder_layers: 3}\n"
    text += "optimization: {max_update: 10, lr: [0.001]}\ncriterion: cross_entropy\n"
    whole = f"{text}dataset: {{max_tokens: 600}}\n"
    path.write_text(f"{whole}common: {{user_dir: x, log_interval: 7}}\n")
    own = read_recipe(path)
    beam, longest = own.decoding.beam, own.decoding.max_len_b
    assert (own.row, beam, longest, own.training.average) == ("mine", 5, 200, 5)
    read = parsed(own.training.words())
    assert (read["criterion"], read["log_interval"]) == ("cross_entropy", 7)
    for pads in (True, False):
        path.write_text(f"{whole}task: {{_name: translation, left_pad_source: {pads}}}\n")
        assert parsed(as_words(read_recipe(path).training.options))["left_pad_source"] == pads
    path.write_text(f"{text}dataset: {{max_tokens: 4096}}\ngeneration: {{max_tokens: 300}}\n")
    assert read_recipe(path).decoding.max_tokens == 300


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("dataset: {max_tokens: null}", "dataset.max_tokens"),
        ("model: {_name: null}", "model._name"),
        ("optimization: {update_freq: [2, 4]}", "update_freq"),
        ("optimization: {max_update: many}", "max_update"),
        ("optimization: {max_epoch: 3}", "max_epoch"),  # max_update ends training
        ("optimization: {lr: [fast]}", "--lr"),
        ("generation: {beam: 2.5}", "generation.beam"),
        ("generation: {lenpen: .nan}", "lenpen"),
        ("generation: {max_len_a: 0, max_len_b: 0}", "max_len_b"),
        ("common: {seed: 1}", "seed"),
        # fairseq trains from scratch if the file is missing, and repeats resets at each resume.
        ("checkpoint: {restore_file: other.pt}", "finetune_from_model"),
        ("checkpoint: {reset_optimizer: true}", "reset_optimizer"),
        ("checkpoint: {keep_intervals: 3}", "checkpoint.keep_intervals"),
        ("checkpoint: {max_tokens: 3}", "max_tokens"),  # a second group sets it
        ("dataset: {max_tokens: '${nothing}'}", "nothing"),
        ("seed: 1", "seed"),
        ("- a list", ""),
        ("common: {x: Gr\xfc\xdfe}", ""),
        ("model: &a {_name: *a}", "itself"),
        ("defaults: [tiny]", "_self_"),
        ("defaults: [huge, _self_]", "huge"),
        ("defaults: [Mine, _self_]", "itself"),
    ],
)
def test_a_wrong_recipe_is_refused_with_its_file_and_key(
    tmp_path: Path, change: str, named: str
) -> None:
    path = tmp_path / "Mine.yaml"
    head = "" if change.startswith(("defaults", "- ")) else "defaults: [tiny, _self_]\n"
    path.write_text(f"{head}{change}\n", "latin-1")
    with refuses(path, named):
        read_recipe(path)


def test_a_users_recipe_says_what_differs_from_another(tmp_path: Path) -> None:
    """Our commands and hydra merge the same defaults; words change options of the result."""
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    text = "# @package _global_\ndefaults: [small, _self_]\noptimization: {lr: [0.002]}\n"
    (recipes / "mine.yaml").write_text(text)
    (recipes / "more.yaml").write_text(text.replace("small", "mine").replace("0.002", "0.003"))
    words = ["dataset.max_tokens=512", "+model.encoder_layers=1"]
    training = read_recipe(recipes / "more.yaml", words).training
    changes = {"lr": [0.003], "max_tokens": 512, "encoder_layers": 1}
    assert training == RECIPES["small"].training.changed(**changes)
    places = [hydra_quoted(f"file://{folder}") for folder in (tmp_path, FOLDER.parent)]
    folders = f"hydra.searchpath=[{','.join(places)}]"
    by_hydra = composed_by_hydra("+recipes=more", *words, folders)
    assert by_hydra["optimization"]["lr"] == [0.003]
    assert by_hydra["dataset"]["max_tokens"] == 512
    assert by_hydra["lr_scheduler"]["warmup_updates"] == training.options["warmup_updates"]
    for word in ("lr=3", "optimization.lr", "optimization.learning_rate=[1]", "optimization.lr=["):
        with refuses(word.partition("=")[0]):
            recipe("tiny", overrides=[word])


def test_the_recipe_in_the_docs_is_read(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "experiments.md"
    (text,) = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "mine.yaml").write_text(text)
    training = read_recipe(tmp_path / "mine.yaml").training
    assert (training.average, training.batch) == (5, "4,096 tokens")
    limited = training.changed(batch_size=10).batch
    assert limited == "4,096 tokens (a mini-batch has at most 10 examples)"
    assert parsed(training.words())["encoder_layers"] == 3


def test_cuda_graphs_are_used_on_one_gpu_with_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    base, causal = (RECIPES[row].training for row in ("base", "transformer_lm_mhe_tiny"))
    assert "--cuda-graphs" not in base.words()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "--cuda-graphs" in base.words()
    assert "--cuda-graphs" in causal.words()
    for words in (
        base.words(workers=2),
        base.changed(encoder_layerdrop=0.1).words(),
        base.changed(cuda_graphs=False).words(),
        RECIPES["roberta_mhe_tiny"].training.words(),
    ):
        assert "--cuda-graphs" not in words
    monkeypatch.setenv(OWN_USER_DIR, "mine")
    assert "--cuda-graphs" not in base.words()
