"""Studies from YAML to report: training once, conversions, sizes, and errors in one line."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.experiments.study import Variant, read_study
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters, total_parameters
from fairseq_mhe.runs.recipes import recipe
from tests.fixtures.refusals import Refused, refuses
from tests.fixtures.runs import REPOSITORY
from tests.fixtures.trained import TABLE_SIZE, snapshot

Capture = pytest.CaptureFixture[str]

STUDIES = {path.stem: path for path in (REPOSITORY / "scripts" / "studies").glob("*.yaml")}
MIXED = {"attention": "mha", "cross_attention": "mqa"}
TINY = recipe("tiny").training.options
Words = Callable[..., list[str]]
pytestmark = pytest.mark.early


@pytest.fixture
def references(table: Path, tmp_path: Path) -> Path:
    """Make the folder of a study, with the references' runs as run-table trained them."""
    out = tmp_path / "a study"
    for kind in ("mha", "mhe_mul"):
        shutil.copytree(table / f"tiny-{kind}-seed1", out / f"tiny-{kind}-seed1")
    return out


@pytest.fixture
def words(miniature: Path) -> Words:
    """Return a maker of a study's command line: its file, its folder, more options; one seed."""

    def make(study: Path, out: Path, *more: str) -> list[str]:
        line = ["run-table", "--study", str(study), "--data", str(miniature), "--out", str(out)]
        return [*line, *TABLE_SIZE, "--seeds", "1", *more]

    return make


def write_study(path: Path, variants: dict[str, Any], **changes: Any) -> Path:
    """Write a study of ``variants`` beside mha; a key is removed if its change is None."""
    content = {"question": "What changes?", "base": "tiny", "reference": "mha", "seeds": [1]}
    content |= {"variants": {"mha": {}, **variants}, **changes}
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(yaml.safe_dump(kept, sort_keys=False))
    return path


def reports(out: Path, name: str) -> dict[str, Any]:
    """Check the report's three files, and return variant -> summary."""
    results = json.loads((out / f"{name}.json").read_text())
    text = (out / f"{name}.md").read_text()
    for fact in ("processor", "torch", "date", "command", "nrefs:1"):
        assert fact in text
    assert results["facts"]["command"].startswith("fairseq-mhe run-table --study ")
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return {summary["variant"]: summary for summary in results["variants"]}


def test_finished_runs_of_run_table_are_not_trained_again(
    references: Path, words: Words, capsys: Capture
) -> None:
    """A reference that was trained again would have newer files. The report names all machines."""
    out, before = references, snapshot(references)
    config = out / "tiny-mhe_mul-seed1" / "config.json"
    settings = json.loads(config.read_text())
    settings["trained_on"]["processor"] = "another processor"
    config.write_text(json.dumps(settings))
    line = words(STUDIES["gap-study"], out, "--only", "std-0.5,mha")
    assert cli.main([*line, "--finished-only"]) == 0
    assert "left out: std-0.5." in capsys.readouterr().out
    assert cli.main(line) == 0
    screen = capsys.readouterr()
    assert screen.out == (out / "gap-study.md").read_text(), "printed once, at the end"
    assert before.items() <= snapshot(out).items()
    summaries = reports(out, "gap-study")
    trained_on = re.search("Trained on (.*)", screen.out)
    assert trained_on is not None
    assert len(trained_on[1].split("; ")) == 2
    assert "another processor" in trained_on[1]
    assert list(summaries) == ["mhe_mul", "mha", "std-0.5"]
    assert summaries["std-0.5"]["loss_p"] is None, "one seed"
    run = out / "tiny-std-0.5-seed1"
    assert open_source(run / "model.pt").options["head_embedding_std"] == 0.5
    remaining = (run / "checkpoints").iterdir()
    assert [path.name for path in remaining] == ["checkpoint_last.pt"], "room for other variants"


def test_seeds_of_different_precision_have_no_mean(
    references: Path, words: Words, tmp_path: Path, refused: Refused
) -> None:
    """With --precision auto a run that was copied from another machine keeps its precision."""
    first = references / "tiny-mha-seed1"
    second = shutil.copytree(first, references / "tiny-mha-seed2")
    config = json.loads((second / "config.json").read_text())
    config["settings"]["seed"] = 2
    config["settings"]["options"] |= {"seed": 2, "bf16": True}
    (second / "config.json").write_text(json.dumps(config))
    study = write_study(tmp_path / "mine.yaml", {})
    line = words(study, references, "--finished-only", "--seeds", "1,2", "--precision", "auto")
    assert f"{first} and {second} are both tiny mha but differ by bf16" in refused(*line)
    assert not (references / "mine.md").exists()


def test_converted_models_are_scored_untrained_and_after_further_training(
    references: Path, words: Words, tmp_path: Path, capsys: Capture
) -> None:
    """At D = 128 the decomposition of four heads of width 32 is exact: the translations stay."""
    out = references
    fit = {"variant": "mha", "collaborative_dim": 128, "iterations": 5, "sentences": 20}
    common = {"attention": "collaborative", "model.collaborative_dim": 128, "start": fit}
    variants = {"decomposed": {**common, "updates": 0}, "tuned": {**common, "updates": 0.25}}
    uptrained = {"attention": "mqa", "start": {"variant": "mha", "sentences": 20}}
    variants["further"] = {"attention": "mha", "updates": 0.25, "start": {"variant": "mha"}}
    variants["uptrained"] = {**uptrained, "updates": 0.25}
    line = words(write_study(tmp_path / "mine.yaml", variants), out)
    assert cli.main(line) == 0, capsys.readouterr().err
    summaries = reports(out, "mine")
    assert list(summaries) == ["mha", *variants]
    exact = out / "tiny-decomposed-seed1" / "test" / "hypotheses.txt"
    assert exact.read_text() == (out / "tiny-mha-seed1/test/hypotheses.txt").read_text()
    assert summaries["decomposed"]["bleu"] == summaries["mha"]["bleu"]
    assert summaries["decomposed"]["loss"] is None
    assert summaries["uptrained"]["kv_bytes_per_token"] < summaries["mha"]["kv_bytes_per_token"]
    start, tuned = (
        open_source(out / f"tiny-{name}-seed1" / "model.pt") for name in ("decomposed", "tuned")
    )
    assert tuned.options["collaborative_dim"] == 128
    assert tuned.state["optimizer_history"][-1]["num_updates"] == 1  # a quarter of 4
    before, after = start.model.state_dict(), tuned.model.state_dict()
    near = [(after[name] - value).abs().max() for name, value in before.items() if "proj" in name]
    assert max(near) < 0.1, "it must begin with the decomposed weights"
    times = snapshot(out)
    assert cli.main(line) == 0
    again = {name for name, time in snapshot(out).items() if times.get(name) != time}
    assert again <= {"mine.json", "mine.md", "mine.png", "mine-costs.png"}
    fit["iterations"] = 6
    write_study(tmp_path / "mine.yaml", variants)
    assert cli.main(line) == 2
    assert "was converted from another model or by other options" in capsys.readouterr().err


def test_slurm_jobs_train_the_variants_that_start_from_one_model(
    references: Path, words: Words, tmp_path: Path, capsys: Capture
) -> None:
    """Each model is in one job alone: two jobs once trained the reference at the same time."""
    out = references
    variants = {"sha": {}, "mqa": {}}
    variants["tuned"] = {"attention": "mqa", "updates": 0, "start": {"variant": "mqa"}}
    line = words(write_study(tmp_path / "mine.yaml", variants, reference="sha"), out)
    assert cli.main([*line, "--slurm-dry-run"]) == 0
    assert "2 of 3 models" in capsys.readouterr().out, "mha is finished"
    assert not list(out.glob("start-*"))
    script = str(out / "slurm" / "job.sh")
    assert subprocess.run(["bash", script, "1"]).returncode == 0
    scored = {path.parts[-3] for path in out.glob("*/test/scores.json")}
    kinds = ("mha", "mhe_mul", "mqa", "tuned")
    assert scored == {f"tiny-{kind}-seed1" for kind in kinds}
    assert not (out / "mine.md").exists()
    assert cli.main([*line, "--slurm-dry-run"]) == 0
    assert "1 of 3 models" in capsys.readouterr().out


def test_a_seed_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    assert read_study(write_study(tmp_path / "mine.yaml", {}, seeds=[1, 2, 1])).seeds == [1, 2]


def test_a_share_of_a_training_shortens_warm_up_and_intervals() -> None:
    """A recipe with patience would keep its whole warm-up, longer than the shortened training."""
    training = recipe("tiny").training.shortened(1000).changed(keep_interval_updates=4)
    training = training.part(0.2)
    assert (training.updates, training.options["warmup_updates"]) == (200, 20)
    assert training.average == 3
    training = recipe("multi30k").training.part(0.2)
    assert (training.updates, training.patience, training.average) == (1600, 0, 10)
    assert training.options["warmup_updates"] == 400


def model_of(variant: Variant, **more: Any) -> Any:
    """Build the model that fairseq-train would build."""
    changed = recipe("tiny", overrides=variant.overrides).training.options
    options = {name: value for name, value in changed.items() if TINY.get(name) != value}
    options.pop("lr", None)
    places = {f"{place}_attention": kind for place, kind in variant.attention.items()}
    return build_on_meta("tiny", variant.attention["encoder"], 4144, **places, **options, **more)


@pytest.mark.parametrize("name", STUDIES)
def test_every_variant_of_a_study_can_be_built(name: str) -> None:
    study = read_study(STUDIES[name])
    assert study.base == "tiny"
    whole = name == "equal_size"
    fewer = {} if whole else {"encoder_layers": 1, "decoder_layers": 1}  # half as many
    models = {variant.name: model_of(variant, **fewer) for variant in study.variants}
    assert len(models) == len(study.variants)
    if name == "equal-budget":
        del models["mha"]
        for other, model in models.items():
            assert 2 * attention_parameters(model) == pytest.approx(174_336, rel=0.01), other
    if whole:
        for other, model in models.items():
            assert total_parameters(model) == pytest.approx(1_453_568, rel=1e-3), other
    if name == "kinds":
        assert {variant.attention["cross"] for variant in study.variants} == set(KINDS)
    if name == "gap-study":
        for variant in study.variants:
            mixed = len(set(variant.attention.values())) > 1
            assert bool(variant.overrides) + mixed <= 1, "one change"


@pytest.mark.parametrize(
    ("variants", "changes", "named"),
    [
        ({}, {"seeds": None}, "seeds"),
        ({}, {"rows": "tiny"}, "rows"),
        ({}, {"reference": "sha"}, "mha needs the variant sha"),
        ({"x": {}}, {}, "encoder attention of x"),
        ({"x": {"attention": "mha", "lr": 3}}, {}, "x sets lr"),
        ({}, {"seeds": ["one"]}, "'one'"),
        ({"x": {"attention": "mha", "start": {"variant": "x"}}}, {}, "x starts from its own"),
        ({"x": {**MIXED, "start": {"variant": "mha"}}}, {}, "x has a start"),
    ],
)
def test_a_wrong_study_is_refused(
    tmp_path: Path, variants: dict[str, Any], changes: dict[str, Any], named: str
) -> None:
    path = write_study(tmp_path / "mine.yaml", variants, **changes)
    with refuses(path, named):
        read_study(path)
