"""``cost``: its numbers by hand, its table, and one line for what cannot be."""

from __future__ import annotations

import json

import pytest

from fairseq_mhe import cli


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["cost", *words]) == 0
    return capsys.readouterr().out


def test_json_of_mha_base_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """C = 512, feed-forward 2048, vocabulary 1000, 6 + 6 layers; 10 source and 4 target tokens."""
    words = "base mha --source 10 --target 4 --beam 3 --vocab-size 1000 --json"
    report = json.loads(printed(capsys, *words.split()))
    square, ffn = 512 * 512, 2 * 512 * 2048
    encoder, keys = 6 * (4 * square + 2 * 512 * 10), 6 * 2 * square
    decoder = 6 * (4 * square + 2 * 512 * 2.5 + 2 * square + 2 * 512 * 10)
    assert report["multiply_adds"] == {
        "attention": {"per_source_token": encoder + keys, "per_target_token": decoder},
        "model": {
            "per_source_token": encoder + keys + 6 * ffn,
            "per_target_token": decoder + 6 * ffn + 512 * 1000,
        },
    }
    per_token = 6 * 2 * 512 * 4
    assert report["cache_bytes"] == {
        "per_source_token": per_token,
        "per_target_token": per_token,
        "per_sentence": 14 * per_token,
        "per_sentence_with_beam": (10 + 3 * 4) * per_token,
    }
    assert report["attention_parameters"] == 18 * 4 * square
    norms_and_biases = 6 * (2048 + 512) * 2 + 6 * 2 * 2 * 512 + 6 * 3 * 2 * 512
    assert (
        report["total_parameters"] == 18 * 4 * square + 12 * ffn + 1000 * 512 + norms_and_biases
    )
    assert report["attention"] == {"encoder": "mha", "decoder": "mha", "cross": "mha"}
    assert all(
        isinstance(number, int)
        for part in report["multiply_adds"].values()
        for number in part.values()
    )


def test_options_reach_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    words = "tiny gqa --kv-heads 4 --cross-attention collaborative --collaborative-dim 8 --json"
    report = json.loads(printed(capsys, *words.split()))  # C = 128, n = 4, d = 32, 2 + 2 layers
    assert report["attention"] == {"encoder": "gqa", "decoder": "gqa", "cross": "collaborative"}
    assert report["cache_bytes"]["per_target_token"] == 2 * 2 * 4 * 32 * 4
    assert report["cache_bytes"]["per_source_token"] == 2 * (8 + 4 * 32) * 4


def test_the_table_fits_80_columns_and_says_what_it_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(capsys, "big", "collaborative")
    assert max(map(len, out.split("\n"))) <= 80
    assert "…" not in out
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.split("\n")]
    assert ["encoder: collaborative", "15,753,216", "16,496,640", "0"] in cells
    text = " ".join(out.split())
    assert "projections, scores and weighted sums" in text
    assert "sees 13 target tokens on average" in text
    assert "bytes with a beam of 5." in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["huge", "mha"], "unknown row 'huge'; choose one of: base"),
        (["base", "mhe"], "unknown attention 'mhe'; choose one of: mha"),
        (
            ["base", "mha", "--kv-heads", "2"],
            "--attention-kv-heads has no effect on --attention mha: leave it out",
        ),
        (["base", "mha", "--vocab-size", "2"], "a vocabulary of 2 has no words"),
    ],
)
def test_bad_input_ends_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["cost", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_language_models_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["cost", "roberta_mhe_base", "mhe_mul", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["attention"] == {"encoder": "mhe_mul"}
    assert found["attention_parameters"] == 8_875_008
    assert found["embedding_parameters"] == 32768 * 768
    cli.main(["cost", "transformer_lm_mhe_gpt", "mhe_mul", "--json"])
    found = json.loads(capsys.readouterr().out)
    # one key and one value of 64 float32 numbers in each of 12 layers
    assert found["cache_bytes"]["per_target_token"] == 12 * 2 * 64 * 4
    assert found["cache_bytes"]["per_source_token"] == 0
    cli.main(["cost", "roberta_mhe_tiny", "mha"])
    assert "cross" not in capsys.readouterr().out
