"""The target language chooses how a run is scored; patience ends a training."""

from pathlib import Path
from typing import Any

from fairseq_mhe.common.files import read_json, write_text
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.runs import translation
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.scoring import score_folder
from fairseq_mhe.runs.translation import ScoringOptions, is_scored
from tests.fixtures.runs import open_run, settings, train_jobs
from tests.fixtures.small_runs import SMALL


def test_edited_hypotheses_and_other_options_are_scored_again(tmp_path: Path) -> None:
    identity = {"languages": ["en", "zh"], "fingerprint": "0" * 64}
    job = open_run(tmp_path / "r", {**settings(), "data": identity}, {})
    for name in ("sources", "references", "hypotheses"):
        write_text(job.folder / "test" / f"{name}.txt", "今天山里天气很好\n" * 3)
    spec = TextProcessing("en", "zh", "none", "bpe")

    def bleu(options: ScoringOptions) -> dict[str, Any]:
        assert not is_scored(job, options)
        score_folder(job.folder / "test", spec, options.bleu_tokenizer)
        assert is_scored(job, options)
        return read_json(job.folder / "test" / "scores.json")["bleu"]

    for chosen, tokeniser in ((None, "zh"), ("char", "char")):
        scores = bleu(ScoringOptions(bleu_tokenizer=chosen))
        assert f"|tok:{tokeniser}|" in scores["signature"]
        assert scores["score"] == 100
    assert not is_scored(job, ScoringOptions(subset="valid"))
    (job.folder / "test" / "hypotheses.txt").write_text("我们一起去看那些花草树木\n" * 3)
    assert bleu(ScoringOptions())["score"] < 50


def test_training_ends_when_the_loss_no_longer_falls(tmp_path: Path) -> None:
    """fairseq's --patience ends a training at learning rate 0; model.pt averages its epochs."""
    data = open_data(SMALL / "data")
    unset = dict.fromkeys(name for name in settings()["options"] if "_interval" in name)
    options = settings(
        max_update=500, patience=2, lr=[0.0], keep_last_epochs=3, no_epoch_checkpoints=None, **unset
    )
    run = open_run(tmp_path / "r", {**options, "data": data.identity}, {"data": str(data.folder)})
    for _ in range(2):  # the second time it resumes after two epochs
        _, failures = train_jobs(run, device=Device(gpu=False, slots=1, threads=1))
        assert not failures
        translation.make_model(run)
        metrics = read_json(run.metrics)
        (first, loss), *others = metrics["valid"]
        assert [point[1] for point in others] == [loss, loss]
        assert metrics["ended_by_patience"] == 3 * first < 500
        for path in (run.metrics, *run.checkpoints.glob("checkpoint[_3]*")):
            path.unlink()
