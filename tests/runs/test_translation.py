"""The target language chooses how a run is scored; patience ends a training."""

from pathlib import Path

from fairseq_mhe.common.files import read_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.runs import translation
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.pool import Pool, Work
from tests.fixtures.runs import open_run, settings
from tests.fixtures.small_runs import SMALL


def test_a_run_is_scored_with_the_tokeniser_of_its_target_language(tmp_path: Path) -> None:
    data = {"languages": ["en", "zh"], "fingerprint": "0" * 64}
    job = open_run(tmp_path / "r", {**settings(), "data": data}, {})
    for name in ("sources", "references", "hypotheses"):
        lines = "今天山里天气很好\n我们一起去看那些花草树木\n"
        write_text(job.folder / "test" / f"{name}.txt", lines)
    for tokenise, expected in ((None, "zh"), ("char", "char"), (None, "zh")):
        translation.score(job, "test", tokenise)
        signature = read_json(job.folder / "test" / "scores.json")["bleu"]["signature"]
        assert f"|tok:{expected}|" in signature
        assert translation.scored(job, "test", tokenise)
    assert not translation.scored(job, "test", "char")
    assert not translation.scored(job, "valid")


def test_edited_hypotheses_are_scored_again(tmp_path: Path) -> None:
    data = {"languages": ["en", "de"], "fingerprint": "0" * 64}
    job = open_run(tmp_path / "r", {**settings(), "data": data}, {})
    hypotheses = job.folder / "test" / "hypotheses.txt"
    for name in ("sources", "references", "hypotheses"):
        write_text(job.folder / "test" / f"{name}.txt", "das Licht im Flur ist an\n" * 3)

    def bleu() -> float:
        translation.score(job, "test")
        return read_json(job.folder / "test" / "scores.json")["bleu"]["score"]

    assert bleu() == 100
    assert translation.scored(job, "test")
    hypotheses.write_text("die Heizung im Bad ist aus\n" * 3)
    assert not translation.scored(job, "test")
    assert bleu() < 50


def test_training_ends_when_the_loss_no_longer_falls(tmp_path: Path) -> None:
    """fairseq's --patience ends a training at learning rate 0; model.pt averages its epochs."""
    data = open_data(SMALL / "data")
    unset = dict.fromkeys(name for name in settings()["options"] if "_interval" in name)
    options = settings(
        max_update=500, patience=2, lr=[0.0], keep_last_epochs=3, no_epoch_checkpoints=None, **unset
    )
    run = open_run(tmp_path / "r", {**options, "data": data.identity}, {"data": str(data.folder)})
    for _ in range(2):  # the second time it resumes after two epochs
        work = Work(lambda: [run], lambda job: job.metrics.exists(), lambda job: None)
        with Board("updates", [run.name]) as board:
            assert not Pool(work, Device(gpu=False, slots=1, threads=1), board).run()
        translation.make_model(run)
        metrics = read_json(run.metrics)
        (first, loss), *others = metrics["valid"]
        assert [point[1] for point in others] == [loss, loss]
        assert metrics["ended_by_patience"] == 3 * first < 500
        for path in (run.metrics, *run.checkpoints.glob("checkpoint[_3]*")):
            path.unlink()
