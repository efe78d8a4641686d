"""The study of the gap: variants that change one thing, and what the report says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.report.significance import compare_seeds
from fairseq_mhe.runs.recipes import RECIPES
from fairseq_mhe.runs.run import Run
from studies.__main__ import main
from studies.gap_report import report, summarise
from studies.gap_variants import MHA, MHE, QUESTIONS, variants
from studies.study import Study
from studies.trainings import Variant, chosen
from tests.fixtures.trained import snapshot


def every(row: str = "tiny") -> list[Variant]:
    return variants(row, RECIPES[row].training)


def parameters(row: str, variant: Variant) -> int:
    """Of the attention in the model that fairseq-train's words would build."""
    words = dict(zip(variant.options[::2], variant.options[1::2], strict=True))
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in words.items()}
    numbers = {
        name: value if name.endswith("_init") else float(value) for name, value in options.items()
    }
    numbers = {n: int(v) if n.endswith(("heads", "dim")) else v for n, v in numbers.items()}
    places = {f"{place}_attention": kind for place, kind in variant.attention.items()}
    return attention_parameters(
        build_on_meta(row, variant.attention["encoder"], **places, **numbers)
    )


@pytest.mark.parametrize("row", ["tiny", "small", "iwslt", "base"])
def test_variants_can_be_built_and_those_of_heads_are_as_large_as_the_default(row: str) -> None:
    found = {variant.name: parameters(row, variant) for variant in every(row)}
    assert len(found) == len(every(row))
    assert {variant.question for variant in every(row)} == set(QUESTIONS)
    for variant in every(row):
        if variant.question == "heads":
            assert found[variant.name] == pytest.approx(found[MHE], rel=0.05), variant.name
    sizes = {found[f"only-{place}"] for place in PLACES}
    assert all(found[MHE] < size < found[MHA] for size in sizes)
    same = [v.name for v in every(row) if v.question in ("init", "embeddings", "decay")]
    assert {found[name] for name in same} == {found[MHE]}


def test_a_variant_changes_one_thing_of_the_recipe() -> None:
    rates = {variant.name: variant.changes for variant in every() if variant.question == "rate"}
    assert rates == {
        "lr-half": {"lr": 0.0015},
        "lr-double": {"lr": 0.006},
        "mha-lr-half": {"lr": 0.0015},
        "mha-lr-double": {"lr": 0.006},
    }
    for variant in every():
        assert (
            bool(variant.options)
            + bool(variant.changes)
            + (len(set(variant.attention.values())) > 1)
            <= 1
        )


def test_some_can_be_chosen() -> None:
    assert [v.name for v in chosen(every(), "place,std-0.1")] == [
        *(MHA, MHE, "std-0.1"),
        *("only-encoder", "only-decoder", "only-cross"),
    ]
    assert len(chosen(every(), None)) == len(every()) == 21
    with pytest.raises(
        UserError,
        match=r"--only nothing: there is no such variant; choose of the questions reference",
    ):
        chosen(every(), "place,nothing")


def test_the_report_says_what_is_beyond_the_noise(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    plain = {name: Variant(name, "reference", dict.fromkeys(PLACES, name)) for name in (MHA, MHE)}
    other = {
        name: Variant(name, "embeddings", dict.fromkeys(PLACES, MHE))
        for name in ("mhe_add", "sha", "mqa")
    }  # the names of kinds, so that the runs' folders differ
    wrong = {
        MHA: (4, 5, 4),
        MHE: (12, 11, 12),
        "mhe_add": (4, 5, 5),
        "sha": (11, 12, 12),
        "mqa": (18, 19, 18),
    }
    done = {
        variant: [make_run(name, wrong[name][seed - 1], seed) for seed in (1, 2, 3)]
        for name, variant in {**plain, **other}.items()
    }
    data = DataFolder(tmp_path / "the data", ("en", "de"), {"steps": {}})
    study = Study(tmp_path / "out", data, "test", False, ["gap-study"])
    found = {summary["variant"]: summary for summary in summarise(study, done)}
    against = {
        name: found[name][f"against_{MHE}"]["beyond_noise"]
        for name in (MHA, "mhe_add", "sha", "mqa")
    }
    assert against == {MHA: True, "mhe_add": True, "sha": False, "mqa": True}
    assert found["mhe_add"][f"against_{MHA}"]["beyond_noise"] is False
    assert f"against_{MHE}" not in found[MHE]
    assert found[MHA]["prr"] == 100
    assert found[MHE]["prr_low"] < found[MHE]["prr"] < found[MHE]["prr_high"]
    report(study, RECIPES["tiny"], done, ["std-0.1"]).write(study, show=False)
    text = (study.out / "gap.md").read_text()
    rows = {
        cells[1]: cells
        for cells in (re.split(r" *\| *", line) for line in text.split("\n"))
        if len(cells) > 12
    }
    assert [rows[name][11] for name in (MHE, "mhe_add", "sha", "mqa")] == [
        "",
        "better",
        "within the noise",
        "worse",
    ]
    assert "The best with MHE in all places: mhe_add" in text
    assert "(10 degrees of freedom)" in text
    assert "Not done yet: std-0.1." in text
    assert json.loads((study.out / "gap.json").read_text())["noise"]["degrees_of_freedom"] == 10


def test_intervals_are_by_the_tokeniser_of_the_scores(
    make_run: Callable[..., Run], tmp_path: Path
) -> None:
    done = {}
    for kind, wrong in ((MHA, 4), (MHE, 9)):
        run = make_run(kind, wrong)
        scores = run.subset("test") / "scores.json"
        scores.write_text(scores.read_text().replace("tok:13a", "tok:char"))
        done[Variant(kind, "reference", dict.fromkeys(PLACES, kind))] = [run]
    data = DataFolder(tmp_path / "the data", ("en", "de"), {"steps": {}})
    study = Study(tmp_path / "out", data, "test", False, ["gap-study"])
    _, found = summarise(study, done)
    mha, mhe = (study.cell(runs) for runs in done.values())
    texts = mhe.hypotheses(), mha.hypotheses(), mha.lines("references")
    by_char, by_word = (compare_seeds(*texts, name).prr_low for name in ("char", "13a"))
    assert found["prr_low"] == by_char != by_word


def test_from_data_to_the_report_each_model_once(
    references: Path, of_trainings: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The references' runs are those of run-table, whose folders are taken."""
    out, before = references, snapshot(references)
    line = of_trainings("gap-study", out, "--seeds", "1")
    assert main([*line, "--finished-only"]) == 0
    assert "Not done yet: init-head, init-xavier" in capsys.readouterr().out
    assert before.items() <= snapshot(out).items()
    assert main([*line, "--only", "init-head,decay-1,only-cross"]) == 0
    screen = capsys.readouterr()
    assert screen.out == (out / "gap.md").read_text(), "once, at the end"
    assert "3 of 5 models to do" in screen.err
    assert before.items() <= snapshot(out).items()
    found = {
        summary["variant"]: summary
        for summary in json.loads((out / "gap.json").read_text())["variants"]
    }
    assert list(found) == [MHA, MHE, "init-head", "decay-1", "only-cross"]
    assert found["init-head"]["attention_parameters"] == found[MHE]["attention_parameters"]
    assert found[MHE]["attention_parameters"] < found["only-cross"]["attention_parameters"]
    assert "One seed: nothing can be said of noise." in screen.out
    assert (out / "gap.png").read_bytes().startswith(b"\x89PNG")
    options = {
        name: read_checkpoint(out / f"tiny-{name}-seed1" / "model.pt")["cfg"]
        for name in ("init-head", "decay-1")
    }
    assert options["init-head"]["model"]["shared_projection_init"] == "head"
    assert options["decay-1"]["optimizer"]["head_embedding_weight_decay"] == 1.0
    assert not list((out / "tiny-decay-1-seed1" / "checkpoints").glob("checkpoint_*_*.pt")), (
        "room for others"
    )
    before = snapshot(out)
    assert main([*line, "--only", "init-head,decay-1,only-cross"]) == 0
    changed = {name for name, time in snapshot(out).items() if before[name] != time}
    assert changed <= {"gap.json", "gap.md", "gap.png"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--row", "huge"], "unknown row 'huge'; choose of: base"),
        (["--only", "nothing"], "--only nothing: there is no such variant"),
        (["--seeds", "1,x"], "--seeds 1,x: give whole numbers with commas between"),
        (["--data", "nowhere"], "nowhere/manifest.json is missing"),
        (["--subset", "train2"], "has no 'train2': give a --subset of test, train, valid"),
        (["--finished-only"], "mha and mhe_mul are not finished: there is nothing to compare with"),
    ],
)
def test_bad_input_is_one_line(refused: Callable[..., None], more: list[str], message: str) -> None:
    refused("gap-study", more, message)
