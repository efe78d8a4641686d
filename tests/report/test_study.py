"""The statistics of a study, beside scipy's Dunnett test and sacreBLEU."""

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import mean

import pytest
from scipy import stats

from fairseq_mhe.common.files import read_json, write_json
from fairseq_mhe.report import columns
from fairseq_mhe.report.results import Cell, gather, summarise
from fairseq_mhe.report.study import dunnett, notes_on_statistics, variant_rows
from fairseq_mhe.runs.job import Job

MakeRun = Callable[..., Job]
CONTROL = [20.1, 20.9, 20.4]
LOSSES = {"mha": [2.50, 2.54, 2.49], "mhe_mul": [2.60, 2.63, 2.62], "sha": [2.51, 2.50, 2.53]}


def test_p_values_of_dunnetts_own_example() -> None:
    """Blood counts under two drugs and without (Dunnett 1955): only the second differs at 1%."""
    control = [7.40, 8.50, 7.20, 8.24, 9.84, 8.32]
    drugs = [[9.76, 8.80, 7.68, 9.36], [12.80, 9.68, 12.16, 9.20, 10.55]]
    first, second = dunnett(drugs, control)
    assert [first.p, second.p] == pytest.approx([0.62, 0.0059], abs=2e-3)
    # Dunnett's 95% limits of the differences are -1.25 to 2.55 and 0.87 to 4.39, up to rounding.
    assert [first.low, first.high] == pytest.approx([-1.25, 2.55], abs=0.04)
    assert [second.low, second.high] == pytest.approx([0.87, 4.39], abs=0.04)


@pytest.mark.parametrize("sample", [CONTROL[:1], [20.0, math.nan, 20.1]])
def test_a_single_seed_and_a_diverged_training_have_no_p_value(sample: list[float]) -> None:
    (alone,) = dunnett([[19.0]], control=sample)
    assert (alone.low, alone.p) == (None, None)
    of_sample, of_other = dunnett([sample, [19.5, 19.9, 19.1]], CONTROL)
    assert (of_sample.p is None) == (math.nan in sample)
    assert of_other.p is not None


@pytest.fixture
def cells(make_run: MakeRun) -> dict[str, Cell]:
    """Three kinds with three seeds each, with losses and with translations of their own."""
    wrong = {"mha": (4, 5, 4), "mhe_mul": (12, 11, 12), "sha": (4, 6, 4)}
    folders = []
    for kind, losses in LOSSES.items():
        for seed, loss in enumerate(losses, start=1):
            run = make_run(kind, wrong[kind][seed - 1], seed)
            write_json(
                run.metrics, {**read_json(run.metrics), "valid": [[10, loss + 1], [20, loss]]}
            )
            folders.append(run.folder)
    return {cell.kind: cell for cell in gather(folders)}


def test_rows_compare_each_variant_with_its_reference(cells: dict[str, Cell]) -> None:
    rows = {row["variant"]: row for row in variant_rows(cells, dict.fromkeys(cells, "mha"))}
    others = ["mhe_mul", "sha"]
    test = stats.dunnett(*(LOSSES[kind] for kind in others), control=LOSSES["mha"], random_state=0)
    limits = test.confidence_interval()
    for number, kind in enumerate(others):
        row = rows[kind]
        assert row["loss"] == pytest.approx(mean(LOSSES[kind]), abs=1e-4)
        assert row["loss_difference"] == pytest.approx(mean(LOSSES[kind]) - mean(LOSSES["mha"]))
        assert row["loss_p"] == pytest.approx(test.pvalue[number], abs=1e-3)
        assert row["loss_low"] == pytest.approx(limits.low[number], abs=1e-3)
        assert row["loss_high"] == pytest.approx(limits.high[number], abs=1e-3)
        assert (row["loss_p"] < 0.05) == (not row["loss_low"] <= 0 <= row["loss_high"])
        assert (row["compared_with"], row["variants_compared"]) == ("mha", 2)
        # PRR and intervals are those of run-table.
        (of_table,) = [
            each for each in summarise(list(cells.values())) if each["attention"] == kind
        ]
        for name in ("prr", "prr_low", "prr_high", "p_value", "bleu", "bleu_confidence"):
            assert row[name] == of_table[name]
    assert rows["mhe_mul"]["loss_p"] < 0.05 < rows["sha"]["loss_p"]
    assert rows["mhe_mul"]["prr_high"] < 100 < rows["sha"]["prr_high"]
    assert "compared_with" not in rows["mha"]
    assert (rows["mha"]["prr"], rows["mha"]["p_value"]) == (100.0, None)
    assert "for 2 variants together" in " ".join(notes_on_statistics(list(rows.values())))
    one_seed = [{"seeds": [1], "compared_with": "mha", "variants_compared": 2}]
    assert "Dunnett" not in " ".join(notes_on_statistics(one_seed))


def test_each_variant_may_have_another_reference(cells: dict[str, Cell]) -> None:
    references = {"mha": "mha", "mhe_mul": "mhe_mul", "sha": "mhe_mul"}
    rows = {row["variant"]: row for row in variant_rows(cells, references)}
    expected = mean(LOSSES["sha"]) - mean(LOSSES["mhe_mul"])
    assert rows["sha"]["loss_difference"] == pytest.approx(expected)
    assert rows["sha"]["variants_compared"] == 1
    assert "compared_with" not in rows["mhe_mul"]


def test_a_variant_without_training_has_no_part_in_dunnetts_test(cells: dict[str, Cell]) -> None:
    """A converted model has BLEU, but no loss; it may also be what others are compared with."""
    first = cells["sha"].results[0]
    untrained = replace(first, values={**first.values, "valid_loss": None})
    start = Cell("tiny", "start", (untrained,))
    references = {**dict.fromkeys([*cells, "start"], "mha"), "sha": "start"}
    rows = {row["variant"]: row for row in variant_rows({**cells, "start": start}, references)}
    assert rows["start"]["compared_with"] == "mha"
    (alone,) = dunnett([LOSSES["mhe_mul"]], LOSSES["mha"])
    assert (rows["mhe_mul"]["loss_p"], rows["mhe_mul"]["variants_compared"]) == (alone.p, 1)
    assert "loss_p" not in rows["start"] | rows["sha"]
    assert rows["sha"]["prr"] is not None
    notes = " ".join(notes_on_statistics(list(rows.values())))
    assert "Dunnett's test with mha, for 1 variants" in notes
    assert "with start" not in notes


def test_a_small_p_is_not_shown_as_zero() -> None:
    """A p of 0.000 would claim certainty."""
    _, show = next(column for column in columns.STUDY if column[0] == "p")
    shown = [show({"loss_p": p}) for p in (0.00004, 0.0012, 0.5, None)]
    assert shown == ["<0.001", "0.001", "0.500", ""]
