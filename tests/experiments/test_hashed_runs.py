"""Hashed embeddings in miniature: words, pre-training without a vocabulary, words never seen."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_mhe import cli
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.embeddings import write_hashes
from fairseq_mhe.prepare.corpora.home_assistant import CORPUS, read_corpus
from fairseq_mhe.prepare.task_folder import open_task, prepare_task
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.report.language_table import table
from fairseq_mhe.runs.finetuning import open_pretrained
from fairseq_mhe.runs.precision import of_language_model
from tests.fixtures.language import small_text
from tests.fixtures.trained import FLOAT32

LINES = [pair[0] for pair in read_corpus(CORPUS)["train"][:200]]
RUN = "roberta_mhe_tiny-mhe_mul-hash_pool-lsh-shuffle_random-scaled-seed1"
USUAL = "roberta_mhe_tiny-mhe_mul-shuffle_random-seed1"
UPDATES = ["--tokens", "64", "--batch", "4", "--updates", "3", *FLOAT32]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text in words, a task with words of its own, two models of 3 updates, fine-tuned by 2."""
    place = tmp_path_factory.mktemp("hashed runs")
    small_text(place, LINES, "words", subword="words", hash="lsh", block=64)
    (place / "MRPC").mkdir()
    for split, own in (("train", "Zebra"), ("dev", "quagga")):
        rows = (f"{n % 2}\t1\t2\t{a}\t{own} {n}!" for n, a in enumerate(LINES[:33]))
        heading = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
        (place / "MRPC" / f"{split}.tsv").write_text("\n".join([heading, *rows]) + "\n")
    prepare_task(TASKS["mrpc"], place, place / "words", place / "mrpc", block=64)
    words = ["--data", str(place / "words"), "--out", str(place), "--objective", "shuffle_random"]
    words += ["--kinds", "mhe_mul", "--embeddings", "table,hash_pool-scaled", "--seeds", "1"]
    words += ["--tasks", str(place / "mrpc"), "--epochs", "1"]
    assert cli.main(["nlu-table", "roberta_mhe_tiny", *words, *UPDATES]) == 0
    return place


def test_text_is_cut_into_words_and_all_have_hashes(folder: Path) -> None:
    raw, cut = (
        (folder / "words" / name / "train.txt").read_text().split("\n")
        for name in ("raw", "subword")
    )
    assert cut == [" ".join(re.findall(r"\w+|[^\w\s]+", line.lower())) for line in raw]
    words = Dictionary.load(str(folder / "words" / "bin" / "dict.txt"))
    held_out = (folder / "words" / "subword" / "valid.txt").read_text().split()
    assert set(held_out) - {w for line in cut for w in line.split()}
    assert all(words.index(word) != words.unk() for word in held_out)


def test_a_task_brings_words_that_were_never_seen(folder: Path) -> None:
    text, task = (
        Dictionary.load(str(folder / name / "dict.txt"))
        for name in ("words/bin", "mrpc/bin/input0")
    )
    assert task.symbols[: len(text)] == text.symbols
    assert {"zebra", "quagga"} <= set(task.symbols[len(text) :])
    source = open_source(folder / RUN / "checkpoints" / "checkpoint_last.pt")
    source.know(task)
    assert source.hashed
    seen, unseen = source.hashed(torch.tensor([task.index("quagga"), task.index("zebra")]))
    assert (seen - unseen).abs().max() > 1e-3
    assert not unseen.allclose(source.hashed(torch.tensor([task.unk()]))[0])


def test_pre_training_without_a_vocabulary(folder: Path) -> None:
    config = json.loads((folder / RUN / "config.json").read_text())
    names = ("embedding", "hash", "objective", "scale_embedding")
    assert {name: config[name] for name in names} == {
        "embedding": "hash_pool",
        "hash": "lsh",
        "objective": "shuffle_random",
        "scale_embedding": True,
    }
    assert of_language_model("auto", gpu=False, folder=folder / RUN)[0] == {}  # it goes on as begun
    found = json.loads((folder / RUN / "scores.json").read_text())
    assert found["of"] == "classes of subwords"
    log = (folder / RUN / "train.log").read_text()
    told = json.loads(log.split("| valid | ")[-1].split("\n")[0])
    assert found["nats"] / math.log(2) == pytest.approx(float(told["valid_loss"]), abs=2e-3)
    assert 0 <= float(told["valid_accuracy"]) <= 100
    state = torch.load(folder / RUN / "checkpoints" / "checkpoint_last.pt")
    names = [name for name in state["model"] if "embed_tokens" in name or "lm_head" in name]
    assert sorted(name.split(".", 1)[1] for name in names) == [
        "lm_head.classes.bias",
        "lm_head.classes.weight",
        *(f"sentence_encoder.embed_tokens.{name}" for name in ("mixing", "rows", "special")),
    ]


def test_the_table_counts_embeddings() -> None:
    found = {
        "mha": {"sst2": [80.0, 82.0]},
        "mha, hash_add": {"sst2": [70.0, 70.0]},
        "sha": {"sst2": [60.0, 60.0]},
    }
    attention = {"mha": 3000, "mha, hash_add": 3000, "sha": 1000}
    embeddings = {"mha": (5000, 10_000), "mha, hash_add": (1234, 250_000), "sha": (5000, 8000)}
    lines = table(found, attention, embeddings).split("\n")
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    assert cells[0][2:5] == ["embedding parameters", "all parameters", "MB in float32"]
    assert cells[3][:5] == ["mha, hash_add", "3,000", "1,234", "250,000", "1.0"]
    assert cells[3][-2:] == ["86.4", "-"]  # PEoP is of attention parameters
    assert cells[2][-2:] == ["100.0", "0.18"]


def test_fine_tuning_from_it_scores_every_example(folder: Path) -> None:
    run = folder / f"{RUN}-mrpc-seed1"
    assert json.loads((run / "scores.json").read_text())["examples"] == {"dev": 33}
    before, after = (
        torch.load(place / "checkpoints" / "checkpoint_last.pt")["model"]
        for place in (folder / RUN, run)
    )
    name = "encoder.sentence_encoder.embed_tokens.rows"
    for place in (folder / RUN, run):
        source = open_source(place / "checkpoints" / "checkpoint_last.pt")
        assert source.model.encoder.sentence_encoder.embed_scale == pytest.approx(math.sqrt(128))
    assert 0 < (after[name] - before[name]).abs().max() < 0.01


def test_words_that_a_table_has_not_start_as_its_unknown_word(folder: Path) -> None:
    before, after = (
        torch.load(folder / run / "checkpoints" / "checkpoint_last.pt")["model"][
            "encoder.sentence_encoder.embed_tokens.weight"
        ]
        for run in (USUAL, f"{USUAL}-mrpc-seed1")
    )
    text, task = (
        Dictionary.load(str(folder / name / "dict.txt"))
        for name in ("words/bin", "mrpc/bin/input0")
    )
    assert (len(before), len(after)) == (len(text) + 1, len(task) + 1)
    # Two updates of Adam move a weight by 0.0006 at most, where two words are 0.02 apart.
    expected = [*before[:-1], *[before[text.unk()]] * (len(task) - len(text)), before[-1]]
    torch.testing.assert_close(after, torch.stack(expected), atol=1e-3, rtol=0)
    run = folder / f"{USUAL}-mrpc-seed1"
    assert json.loads((run / "scores.json").read_text())["examples"] == {"dev": 33}
    again = open_pretrained(run / "checkpoints" / "checkpoint_last.pt", open_task(folder / "mrpc"))
    assert again.words == (len(task) + 1,)


def test_a_checkpoint_says_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(folder / RUN / "checkpoints" / "checkpoint_last.pt")
    assert cli.main(["inspect", checkpoint]) == 0
    printed = capsys.readouterr().out
    assert (
        "embedding hash_pool, hash lsh, objective shuffle_random, scale_embedding True" in printed
    )
    assert cli.main(["fold", checkpoint, str(folder / "folded.pt")]) != 0
    assert "no stock form: fairseq's own predicts the words of a table" in capsys.readouterr().err
    assert not (folder / "folded.pt").exists()
    assert cli.main(["convert", checkpoint, str(folder / "converted.pt"), "--to", "mqa"]) == 0
    converted = open_source(folder / "converted.pt")
    assert (converted.options["embedding"], converted.options["hash"]) == ("hash_pool", "lsh")
    line = ["convert", checkpoint, str(folder / "again.pt"), "--to", "gqa"]
    assert cli.main([*line, "--data", str(folder / "words")]) != 0
    assert "says three classes (shuffle_random) and no words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--embedding", "hash_add", "--hash", "md5"], "are hashed by lsh, not by md5 as the mo"),
        (["--embedding", "hash_add", "--objective", "masked_lm"], "hash_add has no output vocabu"),
        (["--hash", "md5"], "--hash md5 has no effect on --embedding table: leave it out"),
    ],
)
def test_what_cannot_be_pre_trained_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    line = ["pretrain", "roberta_mhe_tiny", "mhe_mul", "--data", str(folder / "words"), *words]
    assert cli.main([*line, "--out", str(tmp_path), *UPDATES]) == 2
    (said,) = capsys.readouterr().err.strip().split("\n")
    assert told in said
    assert not list(tmp_path.iterdir())


def test_a_causal_model_has_neither(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["pretrain", "transformer_lm_mhe_tiny", "mha", "--data", str(folder / "words"), "--cpu"]
    for words, told in (
        (["--embedding", "hash_add"], "is for roberta_mhe"),
        (["--objective", "shuffle_random"], "is for masked models"),
        (["--embedding", "table-scaled"], "scales its embedding anyway: leave -scaled out"),
    ):
        assert cli.main([*line, *words]) == 2
        assert told in capsys.readouterr().err


def test_a_task_of_another_hash_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "mrpc"
    shutil.copytree(folder / "mrpc", other)
    inputs = other / "bin" / "input0"
    write_hashes(inputs, Dictionary.load(str(inputs / "dict.txt")), "md5")
    with pytest.raises(UserError, match=r"input0 are hashed by md5, not by lsh as the model's"):
        open_pretrained(folder / RUN / "checkpoints" / "checkpoint_last.pt", open_task(other))
