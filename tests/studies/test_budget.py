"""The study at equal budget: sizes by rule, and what the report says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters
from fairseq_mhe.runs.recipes import RECIPES
from studies.__main__ import main
from studies.budget import NEW, plan
from studies.budget_report import MHA, MHE, QUESTIONS, _notes
from studies.budget_sizes import Size, fitting, of_row
from studies.trainings import Variant, everywhere
from tests.fixtures.trained import snapshot
from tests.studies.checks import reports


def parameters(row: str, variant: Variant) -> int:
    """Of the attention in the model that fairseq-train's words would build."""
    words = zip(variant.options[::2], variant.options[1::2], strict=True)
    options = {
        name.removeprefix("--").replace("-", "_"): int(value) if value.isdecimal() else value
        for name, value in words
    }
    options |= {f"{place}_attention": kind for place, kind in variant.attention.items()}
    return attention_parameters(build_on_meta(row, MHE, 100, **options))


def uniform(variant: Variant | Size) -> bool:
    """Whether one kind is at all places."""
    return len(set(variant.attention.values())) == 1


@pytest.mark.parametrize(("row", "budget"), [("tiny", None), ("small", 1_500_000)])
def test_every_kind_is_as_large_as_the_budget(row: str, budget: int | None) -> None:
    planned = plan(row, budget, 0.01)
    assert [v.name for v in planned.variants[:2]] == [MHE, MHA]
    names = [variant.name for variant in planned.variants]
    assert len(names) == len(set(names))
    for variant in planned.variants[2:]:
        found = parameters(row, variant)
        assert found == pytest.approx(planned.budget, rel=0.01), variant.name
    tried = [*planned.variants[2:], *planned.unmet]
    assert {each.attention["cross"] for each in tried if uniform(each)} == set(KINDS)
    unevenly = {tuple(each.attention.values()) for each in tried if not uniform(each)}
    assert unevenly == {(MHA, MHE, MHE), (MHE, MHA, MHE), (MHE, MHE, MHA)}
    assert all((v.question == "place") != uniform(v) for v in planned.variants)
    order = [list(QUESTIONS).index(variant.question) for variant in planned.variants]
    assert order == sorted(order)
    assert {v.attention["cross"] for v in planned.variants if v.question == "new"} == set(NEW)


def test_the_default_budget_is_the_rows_mhe_mul() -> None:
    assert plan("tiny", None, 0.01).budget == of_row("tiny", MHE).parameters == 174_336


def test_sizes_by_rule() -> None:
    """The row's four heads, half of them, and heads of the row's width; el is of one size only."""
    names = {
        kind: [size.name for size in fitting("tiny", everywhere(kind), 174_336, 0.01)[0]]
        for kind in KINDS
    }
    assert names["mhe_mul"] == ["mhe_mul-4x32", "mhe_mul-2x45"]
    assert names["sha"] == ["sha-3x38", "sha-2x45"]
    assert names["mha"] == ["mha-3x19", "mha-1x57"]
    met, nearest = fitting("tiny", everywhere("el"), 174_336, 0.01)
    assert (met, nearest.name, nearest.parameters) == ([], "el-4x32", 196_608)


def test_from_data_to_the_report_each_model_once(
    references: Path,
    of_trainings: Callable[..., list[str]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The references' runs are those of run-table, whose folders are taken."""
    out = references
    line = of_trainings("equal-budget", out, "--seeds", "1", "--only", "mhe_conv-2x45")
    assert main(line) == 0
    screen = capsys.readouterr()
    assert screen.out == (out / "equal-budget.md").read_text(), "once, at the end"
    found = reports(out, "equal-budget")
    assert found["budget"] == 174_336
    conv = {summary["variant"]: summary for summary in found["variants"]}["mhe_conv-2x45"]
    assert conv["attention_parameters"] == 174_420
    assert conv["kv_bytes_per_token"] == 2 * 2 * 45 * 4
    curve = json.loads((out / "tiny-mhe_conv-2x45-seed1" / "metrics.json").read_text())["valid"]
    assert conv["losses"] == [min(loss for _, loss in curve)]
    projections = 3 * 45 * 128 + 2 * 45 * 128  # query, key and value; output of two heads
    pair = 2 * (3 * 45 + 45)  # three keys and a value for each of two heads
    assert conv["multiply_adds"] == pytest.approx(
        2 * (3 * projections + pair * (25 + 13 + 25)), abs=1
    )
    assert "Too far from the budget: el-4x32 (196,608), nearest." in screen.out
    assert "One seed: nothing can be said of noise." in screen.out
    before = snapshot(out)
    assert main([*line, "--finished-only"]) == 0
    changed = {name for name, time in snapshot(out).items() if before[name] != time}
    assert changed == {f"equal-budget.{ending}" for ending in ("json", "md", "png")}

    kept = [str(run) for run in sorted(out.glob("tiny-*-seed1"))]
    assert cli.main(["keep", *kept, "--out", str(tmp_path)]) == 0
    line[line.index(str(out))] = str(tmp_path)
    assert main([*line, "--finished-only"]) == 0
    again = reports(tmp_path, "equal-budget")
    assert again["variants"] == found["variants"], "without a model"


def test_seeds_that_differ_more_than_the_others_are_named() -> None:
    losses = {"mhe_mul": [4.0, 4.1, 4.0], "mha": [3.0, 3.1, 3.1], "sha": [5.0, 9.0, 7.0]}
    summaries = [{"variant": name, "losses": found} for name, found in losses.items()]
    results = {"unmet": [], "unfinished": [], "signature": "of BLEU"}
    notes = " ".join(_notes(summaries, results, RECIPES["tiny"], "test"))
    assert "pooled (4 degrees of freedom)" in notes
    assert "Unstable: the seeds of sha differ more than the others'" in notes
    steady = " ".join(_notes(summaries[:2], results, RECIPES["tiny"], "test"))
    assert "Unstable" not in steady


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--budget", "100"], "no kind of the row tiny comes within 1.0% of it (nearest: "),
        (["--within", "1"], "--within 1 is no share: give 0 or more, and less than 1"),
        (["--only", "mha-9x9"], "--only mha-9x9: there is no such variant"),
        (["--row", "huge"], "unknown row 'huge'; choose of: base"),
    ],
)
def test_bad_input_is_one_line(refused: Callable[..., None], more: list[str], message: str) -> None:
    refused("equal-budget", more, message)
