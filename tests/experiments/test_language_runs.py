"""Pre-training and fine-tuning in miniature, through the commands behind the scripts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.corpora.home_assistant import read_corpus
from fairseq_mhe.prepare.task_folder import open_task, prepare_task
from fairseq_mhe.prepare.tasks import CANDIDATES, TASKS
from fairseq_mhe.runs import slurm
from fairseq_mhe.runs.finetuning import plan_finetuning
from fairseq_mhe.runs.squad import squad_scores
from fairseq_mhe.runs.understanding import commonest_score
from studies.__main__ import main as study
from tests.checkpoints.test_language_checkpoints import make_checkpoint
from tests.fixtures.language import small_text
from tests.fixtures.task_files import put_task, superglue_rows
from tests.fixtures.trained import FLOAT32, snapshot

LINES = [pair[0] for pair in read_corpus()["train"][:300]]
RUN = "roberta_mhe_tiny-mhe_mul-seed1"
TUNED = f"{RUN}-sst2-seed1"
PRETRAIN = ["pretrain", "roberta_mhe_tiny", "mhe_mul", "--tokens", "64", "--batch", "4"]
PRETRAIN += ["--updates", "3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, a task, a masked model of 3 updates, and that fine-tuned by 4."""
    place = tmp_path_factory.mktemp("language runs")
    small_text(place, LINES, "text", vocab_size=250, block=64)
    for split, start in (("train", 0), ("dev", 40)):
        rows = (f"{line}\t{n % 2}\n" for n, line in enumerate(LINES[start : start + 35]))
        (place / f"sst2.{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    prepare_task(TASKS["sst2"], place, place / "text", place / "sst2", block=64)
    line = [*PRETRAIN, "--data", str(place / "text"), "--out", str(place), *FLOAT32]
    assert cli.main(line) == 0
    assert finetune(place, place, place / "sst2") == 0
    return place


def finetune(folder: Path, out: Path, task: Path, epochs: int = 2) -> int:
    """Fine-tune the model of a folder."""
    words = ["--model", str(folder / RUN), "--out", str(out), "--epochs", str(epochs), *FLOAT32]
    return cli.main(["finetune", str(task), *words])


def tabulate(out: Path, *more: str) -> int:
    """The table of ``mhe_mul`` and seed 1, unless other words say otherwise."""
    usual = [
        "--data",
        str(out / "text"),
        "--seeds",
        "1",
        "--kinds",
        "mhe_mul",
        "--out",
        str(out),
    ]
    return cli.main(["nlu-table", "roberta_mhe_tiny", *usual, *more])


def results_in(folder: Path) -> dict[str, int]:
    """When each result but the table was written."""
    return {
        name: at for name, at in snapshot(folder).items() if not name.startswith("nlu-table")
    }


def test_every_example_is_scored(folder: Path) -> None:
    """35 examples: fairseq's own batching would lose the last 3."""
    run = folder / TUNED
    found = json.loads((run / "scores.json").read_text())
    said = json.loads((run / "predictions.dev.json").read_text())
    assert found["examples"] == {"dev": 35}
    assert len(said) == 35
    right = open_task(folder / "sst2").examples("valid")["labels"]
    accuracy = 100 * sum(a == b for a, b in zip(said, right, strict=True)) / 35
    assert found["scores"] == pytest.approx({"score": accuracy, "accuracy": accuracy})
    log = (run / "train.log").read_text()
    assert '"valid_num_updates": "4"' in log
    assert f'"valid_accuracy": "{accuracy:.1f}"' in log  # fairseq's own count


def test_fine_tuning_begins_with_the_pre_trained_weights(folder: Path) -> None:
    states = [
        torch.load(folder / name / "checkpoints" / "checkpoint_last.pt")["model"]
        for name in (RUN, TUNED)
    ]
    name = "encoder.sentence_encoder.embed_tokens.weight"
    before, after = (state[name] for state in states)
    assert (after - before).abs().max() < 0.01 < before.std()  # four small steps away
    head = "classification_heads.sentence_classification_head.out_proj.weight"
    assert head in states[1]


def test_a_fine_tuned_model_can_be_fine_tuned_further(folder: Path, tmp_path: Path) -> None:
    """As RTE is from MNLI."""
    task = open_task(folder / "sst2")
    job = plan_finetuning(folder / TUNED, task, 1, tmp_path, None, "float32")
    last = folder / TUNED / "checkpoints" / "checkpoint_last.pt"
    assert job.settings["start"] == sha256(last)
    assert job.place("start") == last
    assert job.training.updates == 6  # three epochs of two batches


@pytest.mark.parametrize(
    ("split", "told", "table"),
    [
        ("dev", "sst2, 30 of dev", "no model of "),
        ("train", "has other settings (data fingerprint: ", f"{TUNED} is not of "),
    ],
)
def test_other_examples_of_a_task_are_scored_anew_or_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    split: str,
    told: str,
    table: str,
) -> None:
    """A task whose folder was prepared again: with fewer to score, or with another label."""
    shutil.copytree(folder / TUNED, tmp_path / TUNED)
    for name in ("train", "dev"):
        text = (folder / f"sst2.{name}.tsv").read_text()
        if name == split:
            text = "".join(text.replace("\t1\n", "\t0\n", 1).splitlines(keepends=True)[:31])
        (tmp_path / f"sst2.{name}.tsv").write_text(text)
    task = prepare_task(TASKS["sst2"], tmp_path, folder / "text", tmp_path / "sst2", block=64)
    ended = finetune(folder, tmp_path, task)
    printed = capsys.readouterr()
    assert told in printed.out + printed.err
    assert (ended != 0) == (split == "train")
    assert tabulate(folder, "--tasks", str(task), "--finished-only") == 2
    assert table in capsys.readouterr().err


def test_a_loss_is_computed_where_the_text_lies_now(folder: Path, tmp_path: Path) -> None:
    text = Path(shutil.copytree(folder / "text", tmp_path / "moved"))
    run = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    before = (run / "scores.json").read_text()
    (run / "scores.json").unlink()
    away = (folder / "text").rename(folder / "away")
    try:
        assert cli.main([*PRETRAIN, "--data", str(text), "--out", str(tmp_path), *FLOAT32]) == 0
    finally:
        away.rename(folder / "text")
    assert (run / "scores.json").read_text() == before


def test_pre_training_tells_fairseqs_loss(folder: Path) -> None:
    found = json.loads((folder / RUN / "scores.json").read_text())
    log = (folder / RUN / "train.log").read_text()
    bits = [line for line in log.split("\n") if "| valid |" in line][-1]
    told = float(json.loads(bits.split("| valid | ")[1])["valid_loss"])
    assert found["nats"] / torch.log(torch.tensor(2.0)).item() == pytest.approx(told, abs=2e-3)


def test_what_cannot_be_fine_tuned_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    causal = make_checkpoint(tmp_path / "lm.pt", "transformer_lm_mhe")
    sst2, long = folder / "sst2", tmp_path / "long"
    prepare_task(TASKS["sst2"], folder, folder / "text", long, block=65)
    unfinished = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    (unfinished / "scores.json").unlink()
    for task, model, out, told in (
        (sst2, causal, tmp_path, "not a roberta: fine-tuning starts from a masked"),
        (long, folder / RUN, tmp_path, "prepare the task with --block 64"),
        (sst2, unfinished, tmp_path, f"{unfinished} is no finished run: "),
        (sst2, folder / RUN, folder, "has other settings (options max_update: 4, now 6; "),
    ):
        line = [
            "finetune",
            str(task),
            "--model",
            str(model),
            "--out",
            str(out),
            "--epochs",
            "3",
        ]
        assert cli.main([*line, *FLOAT32]) == 2
        assert told in capsys.readouterr().err


#: Task -> examples, or questions, of the scored set.
SPECIAL = {"copa": 7, "wic": 7, "record": 14, "squad1": 4, "squad2": 6}
#: What one label for all scores, where there is a commonest: 4 of 7 have the first; of 6 questions
#: 2 have no answer, and one an article alone, which is none.
COMMONEST = {"copa": 400 / 7, "wic": 400 / 7, "squad2": 50}


@pytest.mark.parametrize("name", SPECIAL)
def test_every_form_of_task_is_fine_tuned_and_scored(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [line for line in LINES if len(line.split()) > 3]
    put_task(tmp_path, name, long)
    task_folder = prepare_task(
        TASKS[name], tmp_path, folder / "text", tmp_path / "task", block=64
    )
    assert finetune(folder, tmp_path, task_folder, epochs=1) == 0, capsys.readouterr().err
    run = tmp_path / f"{RUN}-{name}-seed1"
    found = json.loads((run / "scores.json").read_text())
    task = TASKS[name]
    (official,) = task.scored
    assert found["examples"] == {official: SPECIAL[name]}
    said = json.loads((run / f"predictions.{official}.json").read_text())
    assert len(said) == SPECIAL[name]
    assert commonest_score(open_task(tmp_path / "task")) == pytest.approx(COMMONEST.get(name))
    values = found["scores"]
    assert values["score"] == pytest.approx(
        sum(values[m] for m in task.metrics) / len(task.metrics)
    )
    if task.suite == "squad":
        check_answers(tmp_path, name, said, values, capsys)
    elif task.form == CANDIDATES:
        rows = superglue_rows(name, long[11:], 7)
        right = {str(q["idx"]): q["answers"][0]["text"] for row in rows for q in row["qas"]}
        assert values["exact"] == pytest.approx(squad_scores(said, as_lists(right))["exact"])
    else:
        rows = superglue_rows(name, long[11:], 7)
        right = [str(row["label"]).lower() for row in rows]
        correct = sum(a == b for a, b in zip(said, right, strict=True))
        assert values["accuracy"] == pytest.approx(100 * correct / 7)
        log = (run / "train.log").read_text()
        assert f'"valid_accuracy": "{values["accuracy"]:.1f}"' in log  # fairseq's own count


def as_lists(right: dict[str, str]) -> dict[str, list[str]]:
    return {name: [text] for name, text in right.items()}


def check_answers(
    folder: Path,
    name: str,
    said: dict[str, str],
    values: dict[str, float],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Predictions are the context's own words, and score-squad says the same of them."""
    path = folder / f"{name}.dev.json"
    for article in json.loads(path.read_text())["data"]:
        (paragraph,) = article["paragraphs"]
        for question in paragraph["qas"]:
            assert said[question["id"]] in paragraph["context"]
            assert said[question["id"]] or name == "squad2"
    run = folder / f"{RUN}-{name}-seed1"
    capsys.readouterr()
    assert (
        cli.main(["score-squad", str(path), str(run / "predictions.dev.json"), "--json"]) == 0
    )
    again = json.loads(capsys.readouterr().out)
    assert {key: values[key] for key in again} == again
    assert values.get("f1 by the best threshold", 100) >= values["f1"]


def test_the_table_goes_on_from_what_is_trained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = results_in(folder)
    assert finetune(folder, folder, folder / "sst2") == 0
    assert "sst2, 35 of dev" in capsys.readouterr().out
    words = [*PRETRAIN[3:], "--tasks", str(folder / "sst2"), "--epochs", "2", *FLOAT32]
    assert tabulate(folder, *words) == 0
    printed = capsys.readouterr().out
    table_file = folder / "nlu-table.md"
    assert str(table_file) in printed
    assert table_file.read_text().strip() in printed
    assert results_in(folder) == before
    # 4 layers of 3 C d + 3 n d + n d C with C = 128, n = 4, d = 32
    assert f"{4 * (3 * 128 * 32 + 3 * 4 * 32 + 128 * 128):,}" in printed
    score = json.loads((folder / TUNED / "scores.json").read_text())["scores"]["score"]
    nats = json.loads((folder / RUN / "scores.json").read_text())["nats"]
    assert re.search(rf"mhe_mul .*\| +{nats:.3f} \| +{score:.2f} \|.*\| +- \| +- \|", printed)
    assert re.search(rf"always the commonest label +\|.* {100 * 18 / 35:.2f} \|", printed)
    assert "- Pre-training: 3 updates of 4 blocks of 64 subwords, in float32." in printed
    assert "- Fine-tuning: seed 1, in float32." in printed
    assert re.search(r"^- python 3\.[0-9.]+, .*torch ", printed, re.MULTILINE)
    values = json.loads((folder / "nlu-table.json").read_text())
    assert values == {"mhe_mul": {"sst2": [score]}}


def test_a_table_is_made_of_kept_runs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have no checkpoints; and seeds that differ in more make no table."""
    runs = [str(folder / RUN), str(folder / TUNED)]
    assert cli.main(["keep", *runs, "--out", str(tmp_path)]) == 0
    assert not list(tmp_path.rglob("*.pt"))
    words = ["--tasks", str(folder / "sst2"), "--finished-only", "--data", str(folder / "text")]
    for out in (folder, tmp_path):
        assert tabulate(out, *words, "--kinds", "mhe_mul,sha") == 0
    table = (tmp_path / "nlu-table.md").read_text()
    assert table == (folder / "nlu-table.md").read_text()
    assert table.endswith("- Not finished, and left out: sha.\n")
    assert "±" not in table
    second = Path(shutil.copytree(tmp_path / TUNED, tmp_path / f"{RUN}-sst2-seed2"))
    assert tabulate(tmp_path, *words, "--seeds", "1,2") == 0
    told = "- Fine-tuning: seeds 1, 2 (±: standard deviation), in float32."
    assert told in (tmp_path / "nlu-table.md").read_text()
    config = json.loads((second / "config.json").read_text())
    for option, value in (("max_update", 5), ("bf16", True)):
        options = {**config["settings"]["options"], option: value}
        changed = {**config, "settings": {**config["settings"], "options": options}}
        (second / "config.json").write_text(json.dumps(changed))
        assert tabulate(tmp_path, *words, "--seeds", "1,2") == 2
        assert f"-sst2-seed2 differ by {option}, so " in capsys.readouterr().err


def test_a_kept_model_is_not_trained_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has its scores; and fine-tuning, which wants the model, says that it is not there."""
    assert cli.main(["keep", str(folder / RUN), "--out", str(tmp_path)]) == 0
    before = snapshot(tmp_path)
    line = [*PRETRAIN, "--data", str(folder / "text"), "--out", str(tmp_path), *FLOAT32]
    assert cli.main(line) == 0
    assert snapshot(tmp_path) == before
    assert finetune(tmp_path, tmp_path, folder / "sst2") == 2
    assert "checkpoint_last.pt does not exist" in capsys.readouterr().err


def test_a_fine_tuned_model_is_decomposed_and_tuned_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At D = n d, where the decomposition is exact, it says what the model itself says."""
    pytest.importorskip("tensorly")
    source = folder / TUNED
    line = ["collaborative-nlu", "--runs", str(source), "--tasks", str(folder / "sst2")]
    line += ["--data", str(folder / "text"), "--dims", "128", "--iterations", "5", *FLOAT32]
    line += ["--sentences", "20", "--epochs", "1", "--out", str(tmp_path)]
    assert study(line) == 0, capsys.readouterr().err
    made = tmp_path / f"{source.name}-D128"
    name = "predictions.dev.json"
    assert json.loads((made / name).read_text()) == json.loads((source / name).read_text())
    again = tmp_path / f"{made.name}-sst2-seed1"
    scores = [
        json.loads((source / "scores.json").read_text())["scores"]["score"],
        json.loads((made / "scores.json").read_text())["score"],
        json.loads((again / "scores.json").read_text())["scores"]["score"],
    ]
    found = json.loads((tmp_path / "collaborative-nlu.json").read_text())
    names = ["before", "decomposed", "fine-tuned again"]
    assert [row["variant"] for row in found["rows"]] == names
    assert [row["sst2"] for row in found["rows"]] == [[score] for score in scores]
    assert scores[0] == scores[1]
    state = torch.load(again / "checkpoints" / "checkpoint_last.pt")
    assert state["cfg"]["model"].attention == "collaborative"
    before = snapshot(tmp_path)
    assert study(line) == 0
    files = {
        path: at for path, at in snapshot(tmp_path).items() if "collaborative-nlu" not in path
    }
    assert files == {path: at for path, at in before.items() if "collaborative-nlu" not in path}
    assert study([*line[:-1], str(tmp_path / "other"), "--runs", str(folder)]) == 2
    assert "is no run folder: it has no config.json" in capsys.readouterr().err


def test_a_causal_models_table_is_of_perplexity(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tokens", "64", "--batch", "4", "--updates", "2", "--seeds", "1", "--cpu"]
    line = ["nlu-table", "transformer_lm_mhe_tiny", *words, "--precision", "bf16"]
    line += ["--kinds", "mhe_mul", "--out", str(tmp_path), "--data", str(folder / "text")]
    assert cli.main(line) == 0
    printed = capsys.readouterr().out
    run = tmp_path / "transformer_lm_mhe_tiny-mhe_mul-seed1"
    nats = json.loads((run / "scores.json").read_text())["nats"]
    # Of 4 layers a key and a value of one head, 32 wide, in float32.
    assert re.search(
        rf"\| mhe_mul +\| +[0-9,]+ \| +{4 * 2 * 32 * 4:,} \| +{nats:.4f} \| ", printed
    )
    assert "- Training: seed 1, 2 updates of 4 blocks of 64 subwords, in bf16." in printed
    assert "'_name': 'cross_entropy_by_rows'" in (run / "train.log").read_text()
    before = (tmp_path / "perplexity.md").read_text()
    assert cli.main([*line, "--finished-only"]) == 0
    assert capsys.readouterr().out == printed
    assert before in printed
    assert {path.name for path in tmp_path.glob("*.*")} == {
        f"perplexity.{end}" for end in ("md", "json", "png")
    }
    other = str(small_text(tmp_path, LINES[:200], "other", vocab_size=250, block=64))
    for how in ("--finished-only", "--slurm"):
        assert cli.main([*line, "--data", other, how]) == 2
        told = f"{run} is not of {other}: "
        assert told in capsys.readouterr().err
    sst2 = str(folder / "sst2")
    assert cli.main([*line, "--tasks", sst2]) == 2
    assert "is not fine-tuned, its table is of perplexity" in capsys.readouterr().err
    assert tabulate(tmp_path, "--data", other, "--tasks", sst2) == 2
    assert "is not in the subwords of" in capsys.readouterr().err


def test_a_slurm_job_trains_a_kind_that_waits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the table to who asks for it."""
    shutil.copytree(folder / RUN, tmp_path / RUN)
    submitted: list[dict[str, list[str]]] = []
    monkeypatch.setattr(slurm, "submit", lambda jobs, total, args: submitted.append(jobs))
    words = [*PRETRAIN[3:], "--data", str(folder / "text"), "--tasks", str(folder / "sst2")]
    words += ["--epochs", "2", *FLOAT32]
    assert tabulate(tmp_path, *words, "--slurm") == 0
    assert cli.main(submitted[0]["mhe_mul"]) == 0
    assert (tmp_path / TUNED / "scores.json").is_file()
    assert not list(tmp_path.glob("nlu-table.*"))
    before = results_in(tmp_path)
    assert tabulate(tmp_path, *words, "--slurm") == 0
    assert [list(jobs) for jobs in submitted] == [["mhe_mul"], []]
    monkeypatch.setattr("fairseq_mhe.common.checkpoint_files.torch.load", None)
    assert tabulate(tmp_path, *words) == 0, "what is finished reads no checkpoint"
    assert results_in(tmp_path) == before
