"""Pre-training and fine-tuning in miniature, through the commands behind the scripts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.common.files import write_json
from fairseq_mhe.common.steps import only_one
from fairseq_mhe.prepare.corpora.home_assistant import CORPUS, read_corpus
from fairseq_mhe.prepare.running_text import TextConfig, prepare_text
from fairseq_mhe.prepare.task_folder import open_task, prepare_task
from fairseq_mhe.prepare.tasks import CANDIDATES, TASKS
from fairseq_mhe.runs import slurm
from fairseq_mhe.runs.squad_scores import squad_scores
from fairseq_mhe.runs.task_scores import commonest_score
from studies.__main__ import main as study
from tests.checkpoints.test_language_checkpoints import make_checkpoint
from tests.fixtures.language import small_text
from tests.fixtures.task_files import put_task, superglue_rows
from tests.fixtures.trained import FLOAT32, snapshot

LINES = [pair[0] for pair in read_corpus(CORPUS)["train"][:300]]
RUN = "roberta_mhe_tiny-mhe_mul-seed1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, a task, a masked model of 3 updates, and that fine-tuned by 4."""
    place = tmp_path_factory.mktemp("language runs")
    small_text(place, LINES, "text", vocab_size=250, block=64)
    for split, start in (("train", 0), ("dev", 40)):
        rows = (f"{line}\t{n % 2}\n" for n, line in enumerate(LINES[start : start + 35]))
        (place / f"sst2.{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    prepare_task(TASKS["sst2"], place, place / "text", place / "sst2", block=64)
    words = ["--data", str(place / "text"), "--tokens", "64", "--batch", "4", "--updates", "3"]
    cli.main(["pretrain", "roberta_mhe_tiny", "mhe_mul", *words, "--out", str(place), *FLOAT32])
    finetune(place)
    return place


def finetune(place: Path, *more: str) -> None:
    words = ["--model", str(place / RUN), "--out", str(place), "--epochs", "2", *FLOAT32]
    cli.main(["finetune", str(place / "sst2"), *words, *more])


def test_every_example_is_scored(folder: Path) -> None:
    """35 examples: fairseq's own batching would lose the last 3."""
    run = folder / f"{RUN}-sst2-seed1"
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


def test_two_processes_share_the_batches_of_one(folder: Path, tmp_path: Path) -> None:
    """Each has half of an update's blocks; which, and so the last digits, are not the same."""
    words = ["--data", str(folder / "text"), "--tokens", "64", "--batch", "4", "--updates", "3"]
    words += ["--out", str(tmp_path), "--precision", "float32", "--processes", "2"]
    assert cli.main(["pretrain", "roberta_mhe_tiny", "mhe_mul", *words]) == 0
    alone, together = (
        [json.loads(blocks) for blocks in re.findall(r'"bsz": "(\S+?)"', log.read_text())]
        for log in (place / RUN / "train.log" for place in (folder, tmp_path))
    )
    assert alone == together == [4, 4, 4]
    scores = (json.loads((place / RUN / "scores.json").read_text()) for place in (folder, tmp_path))
    one, two = (score["nats"] for score in scores)
    assert two == pytest.approx(one, abs=0.02)


def test_fine_tuning_begins_with_the_pre_trained_weights(folder: Path) -> None:
    states = [
        torch.load(folder / name / "checkpoints" / "checkpoint_last.pt")["model"]
        for name in (RUN, f"{RUN}-sst2-seed1")
    ]
    name = "encoder.sentence_encoder.embed_tokens.weight"
    before, after = (state[name] for state in states)
    assert (after - before).abs().max() < 0.01 < before.std()  # four small steps away
    head = "classification_heads.sentence_classification_head.out_proj.weight"
    assert head in states[1]


def test_the_same_command_does_nothing_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(folder)
    finetune(folder)
    assert snapshot(folder) == before
    assert "sst2, 35 of dev" in capsys.readouterr().out


def test_other_examples_of_a_task_are_scored_or_trained_on_anew(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task whose folder was prepared again: with fewer to score, then with other labels."""
    shutil.copytree(folder / f"{RUN}-sst2-seed1", tmp_path / f"{RUN}-sst2-seed1")
    lines = {split: (folder / f"sst2.{split}.tsv").read_text() for split in ("train", "dev")}
    words = ["--model", str(folder / RUN), "--out", str(tmp_path), "--epochs", "2", *FLOAT32]
    for name, changed, told in (
        ("dev", "".join(lines["dev"].splitlines(keepends=True)[:31]), "sst2, 30 of dev"),
        ("train", lines["train"].replace("\t1\n", "\t0\n", 1), "has other settings (data train: "),
    ):
        place = tmp_path / name
        place.mkdir()
        for split, text in {**lines, name: changed}.items():
            (place / f"sst2.{split}.tsv").write_text(text)
        task = prepare_task(TASKS["sst2"], place, folder / "text", place / "sst2", block=64)
        ended = cli.main(["finetune", str(task), *words])
        printed = capsys.readouterr()
        assert told in printed.out + printed.err
        assert (ended != 0) == (name == "train")
        tabulated = [
            "nlu-table",
            "roberta_mhe_tiny",
            "--data",
            str(folder / "text"),
            "--seeds",
            "1",
        ]
        tabulated += ["--kinds", "mhe_mul", "--tasks", str(task), "--finished-only"]
        assert cli.main([*tabulated, "--out", str(folder)]) == 2
        refused = {"train": f"{RUN}-sst2-seed1 is not of {task}: ", "dev": "no model of "}
        assert refused[name] in capsys.readouterr().err


def test_a_model_that_is_not_trained_to_its_end_is_no_beginning(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    (run / "metrics.json").unlink()
    words = ["--model", str(run), "--out", str(tmp_path), "--epochs", "2", *FLOAT32]
    assert cli.main(["finetune", str(folder / "sst2"), *words]) == 2
    assert f"{run} is no run that is trained to its end" in capsys.readouterr().err


def test_a_loss_is_computed_where_the_text_lies_now(folder: Path, tmp_path: Path) -> None:
    text = Path(shutil.copytree(folder / "text", tmp_path / "moved"))
    run = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    before = (run / "scores.json").read_text()
    (run / "scores.json").unlink()
    (text / "bin" / "test.bin").touch()
    words = ["--tokens", "64", "--batch", "4", "--updates", "3", "--out", str(tmp_path), *FLOAT32]
    away = (folder / "text").rename(folder / "away")
    try:
        done = cli.main(["pretrain", "roberta_mhe_tiny", "mhe_mul", "--data", str(text), *words])
    finally:
        away.rename(folder / "text")
    assert done == 0
    assert (run / "scores.json").read_text() == before


def test_pre_training_tells_fairseqs_loss(folder: Path) -> None:
    found = json.loads((folder / RUN / "scores.json").read_text())
    log = (folder / RUN / "train.log").read_text()
    bits = [line for line in log.split("\n") if "| valid |" in line][-1]
    told = float(json.loads(bits.split("| valid | ")[1])["valid_loss"])
    assert found["nats"] / torch.log(torch.tensor(2.0)).item() == pytest.approx(told, abs=2e-3)


def test_another_run_in_the_folder_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", str(folder / RUN), "--out", str(folder), "--epochs", "3", *FLOAT32]
    assert cli.main(["finetune", str(folder / "sst2"), *words]) != 0
    assert "has other settings (options max_update: 4, now 6; " in capsys.readouterr().err


def test_a_folder_where_another_is_at_work_is_left_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder / f"{RUN}-sst2-seed1"
    before = snapshot(run)
    with only_one(run):
        finetune(folder)
    assert f"another fairseq-mhe is at work in {run}: wait for its end" in capsys.readouterr().err
    assert snapshot(run) == before


@pytest.mark.parametrize("name", ["config.json", "scores.json"])
def test_a_damaged_file_of_a_run_is_named_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run = tmp_path / f"{RUN}-sst2-seed1"
    shutil.copytree(folder / run.name, run)
    (run / name).write_text("{")
    words = ["--model", str(folder / RUN), "--out", str(tmp_path), "--epochs", "2", *FLOAT32]
    assert cli.main(["finetune", str(folder / "sst2"), *words]) != 0
    (told,) = [line for line in capsys.readouterr().err.split("\n") if "error:" in line]
    assert f"cannot read {run / name}: " in told


def test_what_cannot_be_fine_tuned_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    causal = make_checkpoint(tmp_path / "lm.pt", "transformer_lm_mhe")
    long = prepare_task(TASKS["sst2"], folder, folder / "text", tmp_path / "long", block=65)
    for task, model, told in (
        (folder / "sst2", causal, "not a roberta: fine-tuning starts from a masked"),
        (long, folder / RUN, "prepare the task with --block 64"),
    ):
        line = ["finetune", str(task), "--model", str(model), "--out", str(tmp_path), *FLOAT32]
        assert cli.main(line) == 2
        assert told in capsys.readouterr().err


#: Task -> examples, or questions, of the scored set.
SPECIAL = {"copa": 7, "wic": 7, "wsc": 7, "record": 14, "squad1": 4, "squad2": 6}
#: What one label for all scores, where there is a commonest: 4 of 7 have the first; of 6 questions
#: 2 have no answer, and one an article alone, which is none.
COMMONEST = {"copa": 400 / 7, "wic": 400 / 7, "wsc": 400 / 7, "squad2": 50}


@pytest.mark.parametrize("name", SPECIAL)
def test_every_form_of_task_is_fine_tuned_and_scored(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = [line for line in LINES if len(line.split()) > 3]
    put_task(tmp_path, name, long)
    prepare_task(TASKS[name], tmp_path, folder / "text", tmp_path / "task", block=64)
    words = ["--model", str(folder / RUN), "--out", str(tmp_path), "--epochs", "1", *FLOAT32]
    assert cli.main(["finetune", str(tmp_path / "task"), *words]) == 0, capsys.readouterr().err
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
    assert cli.main(["score-squad", str(path), str(run / "predictions.dev.json"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {key: values[key] for key in again} == again
    assert values.get("f1 by the best threshold", 100) >= values["f1"]


def test_the_table_goes_on_from_what_is_trained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(folder)
    words = ["--data", str(folder / "text"), "--tokens", "64", "--batch", "4", "--updates", "3"]
    words += ["--tasks", str(folder / "sst2"), "--kinds", "mhe_mul", "--seeds", "1"]
    line = ["nlu-table", "roberta_mhe_tiny", *words, "--epochs", "2", "--out", str(folder)]
    assert cli.main([*line, *FLOAT32]) == 0
    printed = capsys.readouterr().out
    table_file = folder / "nlu-table.md"
    assert str(table_file) in printed
    assert table_file.read_text().strip() in printed
    made = {f"nlu-table.{end}" for end in ("md", "json", "png")}
    assert {name: at for name, at in snapshot(folder).items() if name not in made} == before
    # 4 layers of 3 C d + 3 n d + n d C with C = 128, n = 4, d = 32
    assert f"{4 * (3 * 128 * 32 + 3 * 4 * 32 + 128 * 128):,}" in printed
    score = json.loads((folder / f"{RUN}-sst2-seed1" / "scores.json").read_text())["scores"]
    assert re.search(rf"mhe_mul .*\| +{score['score']:.2f} \|.*\| +- \| +- \|", printed)
    nats = json.loads((folder / RUN / "scores.json").read_text())["nats"]
    assert re.search(rf"mhe_mul .*\| +{nats:.3f} \| +{score['score']:.2f} \|", printed)
    assert re.search(rf"always the commonest label +\|.* {100 * 18 / 35:.2f} \|", printed)
    assert "- Pre-training: 3 updates of 4 blocks of 64 subwords, in float32." in printed
    assert re.search(r"^- python 3\.[0-9.]+, .*torch ", printed, re.MULTILINE)
    values = json.loads((folder / "nlu-table.json").read_text())
    assert values == {"mhe_mul": {"sst2": [score["score"]]}}


def test_a_table_is_made_of_kept_runs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have no checkpoints."""
    runs = [str(folder / RUN), str(folder / f"{RUN}-sst2-seed1")]
    assert cli.main(["keep", *runs, "--out", str(tmp_path)]) == 0
    assert not list(tmp_path.rglob("*.pt"))
    capsys.readouterr()
    tables = []
    for out in (folder, tmp_path):
        words = ["--data", str(folder / "text"), "--tasks", str(folder / "sst2"), "--seeds", "1"]
        line = ["nlu-table", "roberta_mhe_tiny", *words, "--kinds", "mhe_mul,sha"]
        line.append("--finished-only")
        assert cli.main([*line, "--out", str(out)]) == 0
        tables.append((out / "nlu-table.md").read_text())
    assert tables[0] == tables[1]
    assert "dev; one fine-tuning each." in tables[0]
    assert tables[0].endswith("- Not finished, and left out: sha.\n")
    assert "±" not in tables[0]
    shutil.copytree(tmp_path / f"{RUN}-sst2-seed1", tmp_path / f"{RUN}-sst2-seed2")
    assert cli.main([*line, "--seeds", "1,2", "--out", str(tmp_path)]) == 0
    told = "±: the standard deviation over seeds 1, 2, of the fine-tuning alone."
    assert told in (tmp_path / "nlu-table.md").read_text()
    config = tmp_path / f"{RUN}-sst2-seed2" / "config.json"
    other = json.loads(config.read_text())
    other["settings"]["options"]["max_update"] += 1
    config.write_text(json.dumps(other))
    assert cli.main([*line, "--seeds", "1,2", "--out", str(tmp_path)]) == 2
    assert "-sst2-seed2 has max_update 5, and " in capsys.readouterr().err


def test_models_of_two_precisions_are_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds of one model are not averaged over two."""
    runs = [RUN, f"{RUN}-sst2-seed1"]
    assert cli.main(["keep", *(str(folder / run) for run in runs), "--out", str(tmp_path)]) == 0
    for run in runs:
        other = tmp_path / run.replace("mhe_mul", "sha")
        shutil.copytree(tmp_path / run, other)
        change(other / "config.json", attention="sha", bf16=True)
    words = ["--data", str(folder / "text"), "--tasks", str(folder / "sst2"), "--finished-only"]
    line = ["nlu-table", "roberta_mhe_tiny", *words, "--out", str(tmp_path)]
    for kinds, told in (
        ("mhe_mul", "- Fine-tuning: in float32."),
        ("mhe_mul,sha", "- Fine-tuning: in float32 (mhe_mul); in bf16 (sha)."),
    ):
        assert cli.main([*line, "--kinds", kinds, "--seeds", "1"]) == 0
        assert told in (tmp_path / "nlu-table.md").read_text().splitlines()
    second = tmp_path / f"{RUN}-sst2-seed2"
    shutil.copytree(tmp_path / runs[1], second)
    change(second / "config.json", bf16=True)
    assert cli.main([*line, "--kinds", "mhe_mul", "--seeds", "1,2"]) == 2
    assert "-sst2-seed2 has precision bf16, and " in capsys.readouterr().err


def change(path: Path, **options: object) -> None:
    config = json.loads(path.read_text())
    config["settings"]["options"] |= options
    path.write_text(json.dumps(config))


def test_a_kept_model_is_not_trained_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has its scores; and fine-tuning, which wants the model, says that it is not there."""
    assert cli.main(["keep", str(folder / RUN), "--out", str(tmp_path)]) == 0
    before = snapshot(tmp_path)
    words = ["--data", str(folder / "text"), "--tokens", "64", "--batch", "4", "--updates", "3"]
    line = ["pretrain", "roberta_mhe_tiny", "mhe_mul", *words, "--out", str(tmp_path), *FLOAT32]
    assert cli.main(line) == 0
    assert snapshot(tmp_path) == before
    words = ["--model", str(tmp_path / RUN), "--out", str(tmp_path), *FLOAT32]
    capsys.readouterr()
    assert cli.main(["finetune", str(folder / "sst2"), *words]) == 2
    assert "was kept without its model, which nothing more can be" in capsys.readouterr().err


def test_a_fine_tuned_model_is_decomposed_and_tuned_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At D = n d, where the decomposition is exact, it says what the model itself says."""
    pytest.importorskip("tensorly")
    source = folder / f"{RUN}-sst2-seed1"
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
        json.loads((made / "score.json").read_text())["score"],
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
    files = {path: at for path, at in snapshot(tmp_path).items() if "collaborative-nlu" not in path}
    assert files == {path: at for path, at in before.items() if "collaborative-nlu" not in path}
    assert study([*line[:-1], str(tmp_path / "other"), "--runs", str(folder)]) == 2
    assert "is no run folder: it has no config.json" in capsys.readouterr().err


def test_a_causal_models_table_is_of_perplexity(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(folder / "text"), "--tokens", "64", "--batch", "4", "--updates", "2"]
    line = ["nlu-table", "transformer_lm_mhe_tiny", *words, "--seeds", "1", *FLOAT32]
    line += ["--precision", "bf16"]
    line += ["--kinds", "mha,mhe_mul", "--out", str(tmp_path)]
    assert cli.main(line) == 0
    printed = capsys.readouterr().out
    for kind, cached in (("mha", 2 * 128), ("mhe_mul", 2 * 32)):
        run = tmp_path / f"transformer_lm_mhe_tiny-{kind}-seed1"
        nats = json.loads((run / "scores.json").read_text())["nats"]
        cells = rf"\| {kind} +\| +[0-9,]+ \| +{4 * 4 * cached:,} \| +{nats:.4f} \| "
        assert re.search(cells, printed)
        assert "- One training each." in printed
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
        told = f"{tmp_path / 'transformer_lm_mhe_tiny-mha-seed1'} is not of {other}: "
        assert told in capsys.readouterr().err
    assert cli.main([*line, "--tasks", str(folder / "sst2")]) == 2
    assert "is not fine-tuned, its table is of perplexity" in capsys.readouterr().err
    assert cli.main([*line, "--epochs", "2"]) == 2
    assert "--epochs is of " in capsys.readouterr().err


def test_slurm_has_a_job_for_each_kind_that_waits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job trains and scores its own kind alone, and leaves the table to who asks for it."""
    out = tmp_path / "out"
    for run in (RUN, f"{RUN}-sst2-seed1"):
        shutil.copytree(folder / run, out / run)
    submitted: list[dict[str, dict[str, object]]] = []
    monkeypatch.setattr(slurm, "submit", lambda jobs, total, args: submitted.append(jobs))
    words = ["--data", str(folder / "text"), "--tokens", "64", "--batch", "4", "--updates", "3"]
    words += ["--tasks", str(folder / "sst2"), "--seeds", "1", "--epochs", "2", *FLOAT32]
    line = ["nlu-table", "roberta_mhe_tiny", *words, "--out", str(out)]
    assert cli.main([*line, "--kinds", "mha,mhe_mul", "--slurm"]) == 0
    (jobs,) = submitted
    assert list(jobs) == ["mha"]  # mhe_mul has its scores
    where = {"gpus": None, "processes": None, "cpu": True}
    write_json(out / "jobs.json", [{**jobs["mha"], **where}])
    assert cli.main(["run-jobs", str(out / "jobs.json"), "0"]) == 0
    assert (out / "roberta_mhe_tiny-mha-seed1-sst2-seed1" / "scores.json").is_file()
    assert not list(out.glob("nlu-table.*"))
    before = snapshot(out)
    monkeypatch.setattr("fairseq_mhe.common.checkpoint_files.torch.load", None)
    assert cli.main([*line, "--kinds", "mha,mhe_mul"]) == 0, "what is finished reads no checkpoint"
    made = {f"nlu-table.{end}" for end in ("md", "json", "png")}
    assert {name: at for name, at in snapshot(out).items() if name not in made} == before


def test_a_task_of_another_text_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (folder / "text.txt", folder / "text.txt")
    config = TextConfig(train=text, hold_out=5, vocab_size=250, workers=1, out=tmp_path / "other")
    other = str(prepare_text(config))
    line = ["nlu-table", "roberta_mhe_tiny", "--data", other, "--tasks", str(folder / "sst2")]
    assert cli.main([*line, "--out", str(tmp_path)]) != 0
    assert "is not in the subwords of" in capsys.readouterr().err
