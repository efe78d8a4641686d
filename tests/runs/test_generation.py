"""Every sentence of fairseq-generate's output is found, in the set's order, or none is used."""

from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.generation import generation_arguments, parse_hypotheses, sentences_per_second
from fairseq_mhe.runs.recipes import recipe

LOG = Path("generate.log")
OUTPUT = [
    "2026-11-21 04:11:01 | INFO | fairseq_cli.generate | loading model(s) from model.pt",
    "S-2\t▁Turn ▁on",
    "T-2\t▁An",
    "H-2\t-0.25\t▁Ein schalten",
    "D-2\t-0.25\t▁Ein schalten",
    "P-2\t-0.1 -0.2",
    "S-0\t▁Off",
    "H-0\t-1.5e-05\t▁Aus\u2028 ▁und\x85 mehr",
    "H-0\t-2.5\t▁second ▁best",
    "H-1\t-0.5\t",
    "2026-11-21 04:11:01 | INFO | fairseq_cli.generate | "
    "Translated 1,003 sentences (18,127 tokens) in 4.7s "
    "(211.83 sentences/s, 3828.53 tokens/s)",
    "Generate test with beam=5: BLEU4 = 1.00",
]


def test_hypotheses_are_in_order_whatever_they_hold() -> None:
    assert parse_hypotheses(OUTPUT, 3, LOG) == ["▁Aus\u2028 ▁und\x85 mehr", "", "▁Ein schalten"]


@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_number_of_sentences_is_refused(count: int) -> None:
    with pytest.raises(
        UserError, match=rf"3 hypotheses for {count} sentences.*nothing is scored.*generate\.log"
    ):
        parse_hypotheses(OUTPUT, count, LOG)


def test_a_lost_sentence_is_named() -> None:
    with pytest.raises(UserError, match="sentence 1 is missing"):
        parse_hypotheses([line for line in OUTPUT if not line.startswith("H-1")], 3, LOG)


def test_the_speed_is_fairseqs_own() -> None:
    assert sentences_per_second(OUTPUT, LOG) == 211.83
    with pytest.raises(UserError, match="did not report"):
        sentences_per_second(OUTPUT[:-2], LOG)


def test_no_sentence_is_dropped_or_skipped() -> None:
    data = DataFolder(Path("/data set"), ("en", "de"), {"steps": {}})
    words = generation_arguments(
        Path("m.pt"), data, "test", recipe("tiny").decoding, Device(False, 1, 2)
    )
    assert words[words.index("--required-batch-size-multiple") + 1] == "1"
    assert "--skip-invalid-size-inputs-valid-test" not in words
    assert "--cpu" in words
