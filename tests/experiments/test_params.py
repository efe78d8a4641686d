"""Counts of what is really built, against the published numbers and the formulas they follow
from.
"""

from __future__ import annotations

import json

import pytest

from fairseq_mhe import cli
from fairseq_mhe.attention import KINDS
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.build import build_on_meta
from fairseq_mhe.models.counting import attention_parameters, cache_bytes
from fairseq_mhe.report import published as report
from fairseq_mhe.report.published import published

# Xue & Aletras 2023, BERT-base setting, 12 sublayers of d_m 768, n 12, d 64: the formula, and what
# it comes to.
BERT_BASE = {
    "sha": (lambda c, n, d: 3 * c * d + n * d * c, 8_847_360),
    "mha": (lambda c, n, d: 4 * c * c, 28_311_552),
    "el": (lambda c, n, d: 2 * c * c, 14_155_776),
    "mqa": (lambda c, n, d: 2 * c * c + 2 * c * d, 15_335_424),
    "skv": (lambda c, n, d: 3 * c * c, 21_233_664),
    "mhe_add": (lambda c, n, d: 3 * c * d + 3 * n * d + n * d * c, 8_875_008),
    "mhe_mul": (lambda c, n, d: 3 * c * d + 3 * n * d + n * d * c, 8_875_008),
    "gqa": (lambda c, n, d: 2 * c * c + 2 * c * 2 * d, 16_515_072),
    "collaborative": (lambda c, n, d: (2 * c + n) * c // 4 + 2 * c * c, 17_722_368),
    "mhe_conv": (lambda c, n, d: 3 * c * d + 3 * n * d + n * d * c, 8_875_008),
    "mha_conv": (lambda c, n, d: 4 * c * c + 3 * n * d, 28_339_200),
}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["params", *words]) == 0
    return capsys.readouterr().out


def test_every_kind_is_counted_in_the_bert_base_setting(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """To the printed digits, but for mha, of which the paper prints 0.01 million more than its
    formula gives.
    """
    counts = json.loads(printed(capsys, "--setting", "bert-base", "--json"))["bert-base"]
    assert set(counts) == set(KINDS)
    for kind, (formula, exact) in BERT_BASE.items():
        assert counts[kind] == exact == 12 * formula(768, 12, 64), kind
    for kind, printed_count in report.BERT_BASE.items():
        within = 0.015 if kind == "mha" else 0.00501
        assert counts[kind] / 1e6 == pytest.approx(float(printed_count), abs=within)


def test_the_table_of_a_setting_shows_counts_and_merit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At the width of a file or pipe (80 columns) too, where nothing may be cut."""
    lines = printed(capsys, "--setting", "bert-base").split("\n")
    assert max(map(len, lines)) <= 80
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert ["mhe_mul", "739,584", "8,875,008", "8.88"] in cells
    assert ["mha", "2,359,296", "28,311,552", "28.32"] in cells
    assert ["sha", "96.7 / -", "95.2 / -", "93.1 / -", "87.8 / -"] in cells
    assert ["skv", "99.4 / 0.02", "99.1 / 0.03", "99.4 / 0.05", "98.6 / 0.09"] in cells
    assert "…" not in "".join(lines)


def test_rows_have_the_parameters_and_the_cache_of_whole_models(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = json.loads(printed(capsys, "--json"))
    assert set(counts) == {*ROWS, *SMALL_ROWS}
    assert all(set(kinds) == set(KINDS) for kinds in counts.values())
    assert (counts["base"]["mha"], counts["base"]["mhe_mul"]) == (18_874_368, 6_515_712)
    assert (counts["iwslt"]["mha"], counts["iwslt"]["mhe_mul"]) == (18_874_368, 8_285_184)
    text = printed(capsys)
    assert "…" not in text
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.split("\n")]
    for kind in KINDS:
        model = build_on_meta("4l", kind)
        count, cache = attention_parameters(model), cache_bytes(model)
        assert counts["4l"][kind] == count
        (row,) = (cell for cell in cells if cell[:2] == ["4l", kind])
        assert row[2] == f"{count:,}"
        assert row[4:] == [f"{cache.per_target_token:,}", f"{cache.per_source_token:,}"]
    assert [(row[0], row[3]) for row in cells if row[1:2] == ["mhe_mul"]] == [
        (row, paper.parameters if (paper := published(row, "mhe_mul")) else "")
        for row in (*ROWS, *SMALL_ROWS)
    ]
