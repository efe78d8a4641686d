"""Pre-training, fine-tuning and their tables in miniature, by the real commands."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_mhe import cli
from fairseq_mhe.common.files import sha256, write_json
from fairseq_mhe.prepare.task_folder import open_task, prepare_task
from fairseq_mhe.prepare.tasks import CANDIDATES, TASKS
from fairseq_mhe.runs import slurm
from fairseq_mhe.runs.devices import DeviceOptions
from fairseq_mhe.runs.finetuning import FinetuningRecipe, plan_finetuning
from fairseq_mhe.runs.squad import gold_answers, squad_scores
from fairseq_mhe.runs.task_scores import METRICS, commonest_score
from studies.collaborative_nlu import Options, run
from tests.checkpoints.test_language_checkpoints import make_checkpoint
from tests.fixtures.language import small_text
from tests.fixtures.task_files import put_task, superglue_rows
from tests.fixtures.text import read_corpus
from tests.fixtures.trained import FLOAT32, snapshot

Capture = pytest.CaptureFixture[str]

LINES = [pair[0] for pair in read_corpus()["train"][:300]]
RUN = "roberta_mhe_tiny-mhe_mul-seed1"
TUNED = f"{RUN}-sst2-seed1"
BLOCKS = ["task.tokens_per_sample=64", "dataset.batch_size=4"]
SIZE = [*BLOCKS, "--updates", "3", *FLOAT32]
PRETRAIN = ["pretrain", "roberta_mhe_tiny", "mhe_mul", *SIZE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make text, a task, a masked model of 3 updates, and the same fine-tuned by 4 updates."""
    root = tmp_path_factory.mktemp("language runs")
    small_text(root, LINES, "text", vocab_size=250, block=64)
    for split, start in (("train", 0), ("dev", 40)):
        rows = (f"{line}\t{n % 2}\n" for n, line in enumerate(LINES[start : start + 35]))
        (root / f"sst2.{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    prepare_task(TASKS["sst2"], root, root / "text", root / "sst2", block=64)
    line = [*PRETRAIN, "--data", str(root / "text"), "--out", str(root)]
    assert cli.main(line) == 0
    assert finetune(root, root, root / "sst2") == 0
    return root


def finetune(model: Path, out: Path, task: Path, epochs: int = 2) -> int:
    """Fine-tune a model, or the pre-trained model in a folder of runs."""
    model = model / RUN if (model / RUN).exists() else model
    words = ["--model", str(model), "--out", str(out), "--epochs", str(epochs), *FLOAT32]
    return cli.main(["finetune", str(task), *words])


def tabulate(out: Path, text: Path, *more: str) -> int:
    """Run nlu-table for ``mhe_mul`` and seed 1, unless ``more`` has other options."""
    usual = ["--data", str(text), "--out", str(out), "--seeds", "1", "--kinds", "mhe_mul"]
    return cli.main(["nlu-table", "roberta_mhe_tiny", *usual, *SIZE, *more])


def of_sst2(folder: Path) -> list[str]:
    return ["--tasks", str(folder / "sst2"), "--epochs", "2"]


def results_in(folder: Path) -> dict[str, int]:
    """Return file -> time of its last change, without the tables."""
    return {name: at for name, at in snapshot(folder).items() if "nlu" not in name}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_every_example_is_scored(folder: Path) -> None:
    """There are 35 examples; fairseq's own batching would lose the last 3."""
    run = folder / TUNED
    scores, predictions = read(run / "scores.json"), read(run / "predictions.dev.json")
    assert scores["examples"] == {"dev": 35}
    assert len(predictions) == 35
    labels = open_task(folder / "sst2").examples("valid")["labels"]
    accuracy = 100 * sum(a == b for a, b in zip(predictions, labels, strict=True)) / 35
    assert scores["scores"] == pytest.approx({"score": accuracy, "accuracy": accuracy})
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
    """So RTE is often fine-tuned from MNLI."""
    task = open_task(folder / "sst2")
    device = DeviceOptions(precision="float32")
    recipe = FinetuningRecipe(epochs=50, overrides=["optimization.lr=[0.5]"])
    job = plan_finetuning(folder / TUNED, task, 1, tmp_path, recipe, device)
    last = folder / TUNED / "checkpoints" / "checkpoint_last.pt"
    assert (job.settings["start"], job.input_path("start")) == (sha256(last), last)
    assert job.training.updates == 100  # fifty epochs of two batches
    assert (job.training.options["warmup_updates"], job.training.options["lr"]) == (6, [0.5])
    assert cli.main(["fold", str(folder / TUNED), str(last)]) == 2, "its own model"


def test_the_loss_equals_fairseqs_after_a_move_of_the_text(folder: Path, tmp_path: Path) -> None:
    text = Path(shutil.copytree(folder / "text", tmp_path / "moved"))
    run = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    before = (run / "scores.json").read_text()
    (run / "scores.json").unlink()
    away = (folder / "text").rename(folder / "away")
    try:
        assert cli.main([*PRETRAIN, "--data", str(text), "--out", str(tmp_path)]) == 0
    finally:
        away.rename(folder / "text")
    assert (run / "scores.json").read_text() == before
    log = (run / "train.log").read_text()
    bits = [line for line in log.split("\n") if "| valid |" in line][-1]
    fairseqs_loss = float(json.loads(bits.split("| valid | ")[1])["valid_loss"])
    our_loss = json.loads(before)["nats"] / torch.log(torch.tensor(2.0)).item()
    assert our_loss == pytest.approx(fairseqs_loss, abs=2e-3)


def test_evaluate_refuses_a_text_that_the_model_was_not_trained_on(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Else the loss that is printed, or stored, would be of another text."""
    other = small_text(tmp_path, LINES[:200], "other", vocab_size=250, block=64)
    unscored = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    (unscored / "scores.json").unlink()
    for model in (folder / RUN, unscored):
        assert cli.main(["evaluate", str(model), "--data", str(other), "--cpu"]) == 2
        assert f"{other} is not the data of {model}" in capsys.readouterr().err
    assert not (unscored / "scores.json").exists()


def test_models_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    causal = tmp_path / "lm"
    (causal / "checkpoints").mkdir(parents=True)
    make_checkpoint(causal / "checkpoints" / "checkpoint_last.pt", "transformer_lm_mhe")
    (causal / "scores.json").write_text("{}")
    sst2, foreign = folder / "sst2", tmp_path / "foreign"
    other = small_text(tmp_path, LINES[:200], "other", block=65)
    prepare_task(TASKS["sst2"], folder, other, foreign, block=64)
    unfinished = Path(shutil.copytree(folder / RUN, tmp_path / RUN))
    (unfinished / "scores.json").unlink()
    for task, model, out, named in (
        (sst2, causal, tmp_path, "not a roberta"),
        (foreign, folder, tmp_path, str(foreign)),
        (sst2, unfinished, tmp_path, str(unfinished)),
        (sst2, folder, folder, "max_update: 4, now 6"),
    ):
        assert finetune(model, out, task, epochs=3) == 2
        assert named in capsys.readouterr().err


#: Task -> number of scored examples or questions.
EXAMPLES = {"stsb": 7, "copa": 7, "wic": 7, "record": 14, "squad2": 6}
#: Task -> the score of always predicting the commonest label: 4 of 7 examples have the first label,
#: of wic the second; 3 of 6 questions have no answer (one is an article alone, which is none).
COMMONEST = {"copa": 400 / 7, "wic": 400 / 7, "squad2": 50}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_form_of_task_is_fine_tuned_and_scored(
    name: str, folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    long, task = [line for line in LINES if len(line.split()) > 3], TASKS[name]
    put_task(tmp_path, name, long)
    task_folder = prepare_task(task, tmp_path, folder / "text", tmp_path / "task", block=64)
    assert finetune(folder, tmp_path, task_folder, epochs=1) == 0, capsys.readouterr().err
    run = tmp_path / f"{RUN}-{name}-seed1"
    results, (official,) = read(run / "scores.json"), task.scored
    assert results["examples"] == {official: EXAMPLES[name]}
    predictions = read(run / f"predictions.{official}.json")
    assert len(predictions) == EXAMPLES[name]
    assert commonest_score(open_task(task_folder)) == pytest.approx(COMMONEST.get(name))
    values = results["scores"]
    mean = sum(values[metric] for metric in task.metrics) / len(task.metrics)
    assert values["score"] == pytest.approx(mean)
    if task.suite == "squad":
        check_answers(tmp_path, name, predictions, values)
        return
    if name == "stsb":
        expected = [number + 0.25 for number in range(7)]
        assert values["pearson"] == pytest.approx(100 * METRICS["pearson"](expected, predictions))
        return
    rows = superglue_rows(name, long[11:], 7)
    if task.form == CANDIDATES:
        expected = {str(q["idx"]): [q["answers"][0]["text"]] for row in rows for q in row["qas"]}
        assert values["exact"] == pytest.approx(squad_scores(predictions, expected)["exact"])
    else:
        labels = [str(row["label"]).lower() for row in rows]
        correct = sum(a == b for a, b in zip(predictions, labels, strict=True))
        assert values["accuracy"] == pytest.approx(100 * correct / 7)
        log = (run / "train.log").read_text()
        assert f'"valid_accuracy": "{values["accuracy"]:.1f}"' in log  # fairseq's own count


def check_answers(
    folder: Path, name: str, answers: dict[str, str], values: dict[str, float]
) -> None:
    """Check that answers are words of their contexts, and that their scores are those written."""
    path = folder / f"{name}.dev{TASKS[name].suffix}"
    for article in read(path)["data"]:
        (paragraph,) = article["paragraphs"]
        for question in paragraph["qas"]:
            assert answers[question["id"]] in paragraph["context"]
            assert answers[question["id"]] or name == "squad2"
    predictions = folder / f"{RUN}-{name}-seed1" / "predictions.dev.json"
    scores = squad_scores(read(predictions), gold_answers(path))
    assert {"score": scores["f1"], **scores} == pytest.approx(values)


def test_nlu_table_uses_finished_runs(folder: Path, capsys: Capture) -> None:
    before = results_in(folder)
    assert finetune(folder, folder, folder / "sst2") == 0
    assert tabulate(folder, folder / "text", *of_sst2(folder)) == 0
    printed = capsys.readouterr().out
    assert (folder / "nlu-table.md").read_text().strip() in printed
    assert results_in(folder) == before
    # 4 layers of 3 C d + 3 n d + n d C with C = 128, n = 4, d = 32
    assert f"{4 * (3 * 128 * 32 + 3 * 4 * 32 + 128 * 128):,}" in printed
    score = read(folder / TUNED / "scores.json")["scores"]["score"]
    nats = read(folder / RUN / "scores.json")["nats"]
    assert re.search(rf"mhe_mul .*\| +{nats:.3f} \| +{score:.2f} \|.*\| +- \| +- \|", printed)
    assert re.search(rf"always the commonest label +\|.* {100 * 18 / 35:.2f} \|", printed)
    assert "3 updates of 4 examples (blocks of 64 subwords)" in printed
    assert read(folder / "nlu-table.json") == {"mhe_mul": {"sst2": [score]}}


def test_kept_runs_make_the_same_nlu_table(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """Kept runs have no checkpoints. Runs with other settings must be refused, too."""
    for name in (RUN, TUNED):
        without = shutil.ignore_patterns("*.pt", "checkpoints", ".*")
        shutil.copytree(folder / name, tmp_path / name, ignore=without)
    before, text = snapshot(tmp_path), folder / "text"
    assert cli.main([*PRETRAIN, "--data", str(text), "--out", str(tmp_path)]) == 0
    assert snapshot(tmp_path) == before
    assert finetune(tmp_path, tmp_path / "other", folder / "sst2") == 2
    assert f"{RUN}/checkpoints/checkpoint_last.pt" in capsys.readouterr().err
    words = [*of_sst2(folder), "--finished-only", "--kinds", "mhe_mul,sha"]
    for out in (folder, tmp_path):
        assert tabulate(out, text, *words) == 0
    table = (tmp_path / "nlu-table.md").read_text()
    assert table == (folder / "nlu-table.md").read_text()
    assert table.endswith("- Not finished, and left out: sha.\n")


def study(words: list[str]) -> int:
    return cli.run_script("collaborative-nlu", Options, run, words)


def test_collaborative_nlu_decomposes_and_fine_tunes_again(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """At D = n d the decomposition is exact: it must predict what the model itself predicts."""
    pytest.importorskip("tensorly")
    source = folder / TUNED
    line = ["--runs", str(source), "--dims", "128", "--iterations", "5", *FLOAT32, "--epochs", "1"]
    line += ["--out", str(tmp_path)]
    assert study(line) == 0, capsys.readouterr().err
    decomposed = tmp_path / f"{source.name}-D128"
    tuned_again = tmp_path / f"{decomposed.name}-sst2-seed1"
    assert read(decomposed / "predictions.dev.json") == read(source / "predictions.dev.json")
    scores = [
        read(source / "scores.json")["scores"]["score"],
        read(decomposed / "scores.json")["scores"]["score"],
        read(tuned_again / "scores.json")["scores"]["score"],
    ]
    report = read(tmp_path / "collaborative-nlu.json")
    names = ["before", "decomposed", "fine-tuned again"]
    assert [row["variant"] for row in report["rows"]] == names
    assert [row["sst2"] for row in report["rows"]] == [[score] for score in scores]
    assert scores[0] == scores[1]
    state = torch.load(tuned_again / "checkpoints" / "checkpoint_last.pt")
    assert state["cfg"]["model"].attention == "collaborative"
    before = results_in(tmp_path)
    assert study(line) == 0
    assert results_in(tmp_path) == before


def test_collaborative_nlu_refuses_a_task_that_was_prepared_anew(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Scores before and after the decomposition would be of different examples."""
    run_folder = shutil.copytree(folder / TUNED, tmp_path / TUNED)
    config = read(run_folder / "config.json")
    config["settings"]["data"]["fingerprint"] = "0" * 64
    write_json(run_folder / "config.json", config)
    line = ["--runs", str(run_folder), "--dims", "4", "--iterations", "1", *FLOAT32]
    assert study([*line, "--epochs", "1", "--out", str(tmp_path / "out")]) == 2
    assert f"{run_folder} was fine-tuned on other data" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_causal_table_has_perplexity(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    """Its parameters and cache are those of the trained model, which an option made smaller."""
    words = [*BLOCKS, "model.decoder_layers=3", "--updates", "2", "--seeds", "2", "--cpu"]
    words += ["--out", str(tmp_path), "--data", str(folder / "text")]
    of_all = ["nlu-table", "transformer_lm_mhe_tiny", *words]
    line = [*of_all, "--precision", "bf16", "--kinds", "mhe_mul"]
    assert cli.main(line) == 0
    printed = capsys.readouterr().out
    run = tmp_path / "transformer_lm_mhe_tiny-mhe_mul-seed2"
    nats = read(run / "scores.json")["nats"]
    # Of 3 layers a key and a value of one head, 32 wide, in float32.
    parameters = 3 * (3 * 128 * 32 + 3 * 4 * 32 + 128 * 128)
    row = rf"\| mhe_mul +\| +{parameters:,} \| +{3 * 2 * 32 * 4:,} \| +{nats:.4f} \| "
    assert re.search(row, printed)
    before = (tmp_path / "perplexity.md").read_text()
    assert cli.main([*line, "--finished-only"]) == 0
    assert capsys.readouterr().out == printed
    assert before in printed
    copy_of_another_machine(run)
    assert cli.main([*of_all, "--kinds", "mhe_mul,sha", "--finished-only"]) == 0
    precisions = f"bf16 ({run.name}) and float32 ({run.name.replace('mhe_mul', 'sha')})"
    printed = capsys.readouterr().out
    assert f"subwords), in {precisions}.\n" in printed
    assert " or torch 1.2.\n" in printed
    sst2 = ["--tasks", str(folder / "sst2")]
    assert cli.main([*line, *sst2]) == 2
    assert "leave --tasks" in capsys.readouterr().err
    other = small_text(tmp_path, LINES[:200], "other", vocab_size=250, block=64)
    for tasks, named in (([], "--tasks"), (sst2, "not in the subwords"), (sst2 * 2, "one task")):
        assert tabulate(tmp_path, other, *tasks) == 2
        assert named in capsys.readouterr().err


def copy_of_another_machine(run: Path) -> None:
    """Copy a run of mhe_mul as if a machine without bf16 had trained sha."""
    other = shutil.copytree(run, run.with_name(run.name.replace("mhe_mul", "sha")))
    config = read(other / "config.json")
    config["settings"]["attention"] = {"decoder": "sha"}
    config["settings"]["options"]["attention"] = "sha"
    del config["settings"]["options"]["bf16"]
    config["versions"] = {"torch": "1.2"}
    write_json(other / "config.json", config)


def test_slurm_jobs_train_the_unfinished_kinds(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs write no table, since several jobs would overwrite it."""
    shutil.copytree(folder / RUN, tmp_path / RUN)
    submitted: list[slurm.SlurmJob] = []
    monkeypatch.setattr(slurm, "submit", lambda jobs, *_: submitted.extend(jobs))
    words = of_sst2(folder)
    assert tabulate(tmp_path, folder / "text", *words, "--slurm") == 0
    assert cli.main(submitted[0].words) == 0
    assert (tmp_path / TUNED / "scores.json").is_file()
    assert not [*tmp_path.glob("nlu-table.*"), *tmp_path.glob("*-seed2")]
    monkeypatch.setattr("fairseq_mhe.common.checkpoint_files.torch.load", None)
    assert tabulate(tmp_path, folder / "text", *words, "--slurm") == 0, "no checkpoint is read"
    assert [job.finished for job in submitted] == [False, True]
