"""Scores equal sacreBLEU's own command, unequal files are refused, comparisons mean what they say."""

import json
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_mhe import cli
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs import scoring
from fairseq_mhe.runs.scoring import (
    _bleu,
    _bleu_counts,
    compare,
    compare_seeds,
    read_lines,
    read_scores,
    score,
    tokenised_bleu,
)

RANDOM = random.Random(5)
WORDS = [
    "die",
    "der",
    "das",
    "Lampe",
    "Tür",
    "Heizung",
    "ist",
    "war",
    "an",
    "aus",
    "im",
    "Flur",
    ",",
    ".",
    "und",
]
REFERENCES = [" ".join(RANDOM.choices(WORDS, k=RANDOM.randint(3, 14))) for _ in range(60)]


def noisy(share: float, seed: int) -> list[str]:
    """The references with this share of the words replaced."""
    chance = random.Random(seed)
    return [
        " ".join(w if chance.random() > share else "x" for w in line.split()) for line in REFERENCES
    ]


GOOD, BAD = noisy(0.1, 1), noisy(0.4, 2)


def test_scores_and_signatures_are_sacrebleus() -> None:
    scores = score(GOOD, REFERENCES)
    assert scores.sentences == 60
    for found, metric in ((scores.bleu, BLEU()), (scores.chrf, CHRF())):
        assert found.score == pytest.approx(metric.corpus_score(GOOD, [REFERENCES]).score, abs=1e-4)
        assert found.signature == str(metric.get_signature())
        assert 0 < found.confidence < 20
    assert "tok:13a" in scores.bleu.signature
    assert "version:" in scores.bleu.signature


def write(folder: Path, **texts: list[str]) -> None:
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def test_the_p_value_is_that_of_sacrebleus_command(tmp_path: Path) -> None:
    close = noisy(0.12, 3)
    write(tmp_path, ref=REFERENCES, base=GOOD, system=close)
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "ref",
        "-i",
        "base",
        "system",
        "--paired-bs",
        "-f",
        "json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)[1]["BLEU"]["p_value"]
    assert compare(close, GOOD, REFERENCES).p_value == pytest.approx(theirs, abs=1e-4)


def test_the_fixed_seed_gives_the_same_numbers_each_time() -> None:
    assert compare(BAD, GOOD, REFERENCES) == compare(BAD, GOOD, REFERENCES)
    assert score(BAD, REFERENCES) == score(BAD, REFERENCES)


def test_prr_is_the_ratio_with_an_interval_around_it() -> None:
    comparison = compare(BAD, GOOD, REFERENCES)
    ratio = (
        100
        * BLEU().corpus_score(BAD, [REFERENCES]).score
        / BLEU().corpus_score(GOOD, [REFERENCES]).score
    )
    assert comparison.prr == pytest.approx(ratio)
    assert comparison.prr_low is not None
    assert comparison.prr_high is not None
    assert comparison.prr_low < ratio < comparison.prr_high < 100
    assert comparison.p_value < 0.01


def test_bleu_from_summed_counts_is_corpus_bleu() -> None:
    for system in (GOOD, BAD):
        expected = BLEU().corpus_score(system, [REFERENCES]).score
        assert _bleu(_bleu_counts(system, REFERENCES).sum(axis=0)) == pytest.approx(expected)


def test_equal_systems_do_not_differ_significantly() -> None:
    assert compare(GOOD, GOOD, REFERENCES).p_value == 1.0
    empty = [""] * len(REFERENCES)
    nothing = compare(empty, ["x"] * len(REFERENCES), REFERENCES)
    assert (nothing.prr, nothing.prr_low, nothing.p_value) == (None, None, 1.0)


def test_one_seed_each_is_the_plain_comparison() -> None:
    assert compare_seeds([BAD], [GOOD], REFERENCES) == compare(BAD, GOOD, REFERENCES)


def test_seeds_are_compared_by_their_means() -> None:
    systems, baselines = (
        [noisy(0.2, seed) for seed in (1, 2, 3)],
        [noisy(0.1, seed) for seed in (4, 5)],
    )
    means = [
        sum(BLEU().corpus_score(h, [REFERENCES]).score for h in runs) / len(runs)
        for runs in (systems, baselines)
    ]
    comparison = compare_seeds(systems, baselines, REFERENCES)
    assert comparison.prr == pytest.approx(100 * means[0] / means[1])
    assert comparison.prr_low is not None
    assert comparison.prr_high is not None
    assert comparison.prr_low < 100 * means[0] / means[1] < comparison.prr_high
    assert comparison == compare_seeds(systems, baselines, REFERENCES), "the seed is fixed"


def test_a_difference_between_the_first_seeds_only_is_not_significant() -> None:
    """The mean of the other seeds goes the other way: chance, whatever the first ones say."""
    system, baseline = [BAD, noisy(0.1, 7), noisy(0.1, 8)], [GOOD, noisy(0.4, 9), noisy(0.25, 10)]
    assert compare(system[0], baseline[0], REFERENCES).p_value < 0.01
    assert compare_seeds(system, baseline, REFERENCES).p_value > 0.1


def test_a_difference_in_every_seed_is_significant() -> None:
    system, baseline = (
        [noisy(0.4, seed) for seed in (1, 2, 3)],
        [noisy(0.1, seed) for seed in (4, 5, 6)],
    )
    assert compare_seeds(system, baseline, REFERENCES).p_value < 0.01
    assert compare_seeds(baseline, baseline, REFERENCES).p_value == 1.0


def test_the_chance_of_the_seeds_widens_the_interval() -> None:
    """Three equal trainings have the interval of one; three that differ by more have a wider one."""
    apart = [noisy(0.05, 1), noisy(0.25, 2), noisy(0.45, 3)]
    same, varied = (compare_seeds(runs, [GOOD] * 3, REFERENCES) for runs in ([BAD] * 3, apart))
    single = compare(BAD, GOOD, REFERENCES)
    widths = [(c.prr_high or 0) - (c.prr_low or 0) for c in (single, same, varied)]
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] > 2 * widths[1]


def test_equal_systems_rarely_differ_however_much_their_seeds_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both systems' seeds are drawn from the same distribution: a test at 5% should find few of 25 pairs different."""
    monkeypatch.setattr(scoring, "RESAMPLES", 200)
    chance = random.Random(11)

    def trainings() -> list[list[str]]:
        return [
            noisy(max(0.02, chance.gauss(0.25, 0.05)), chance.randrange(1 << 30)) for _ in range(3)
        ]

    pairs = [(trainings(), trainings()) for _ in range(25)]
    by_first = sum(compare_seeds(a[:1], b[:1], REFERENCES).p_value < 0.05 for a, b in pairs)
    by_all = sum(compare_seeds(a, b, REFERENCES).p_value < 0.05 for a, b in pairs)
    assert by_all <= 5 < 8 <= by_first


def test_tokenised_bleu_is_the_older_literatures(tmp_path: Path) -> None:
    """Against sacremoses' command, sed for the compounds, and sacreBLEU's command on what comes out."""
    references = [
        f"Der {i}-Tage-Plan (neu) ist gut, aber E-Mail-Adressen fehlen: a-b-c." for i in range(12)
    ]
    hypotheses = [
        line.replace("Plan", "Entwurf") if i % 2 else line for i, line in enumerate(references)
    ]
    write(tmp_path, ref=references, hyp=hypotheses)
    script = (
        f"{sys.executable} -m sacremoses -q -l de tokenize -x < $0 "
        "| sed -E 's/([^ ])-([^ ])/\\1 ##AT##-##AT## \\2/g' > $0.tok"
    )
    for name in ("ref", "hyp"):
        subprocess.run(["bash", "-c", script, name], cwd=tmp_path, check=True, capture_output=True)
    assert "Tage ##AT##-##AT## Plan" in (tmp_path / "ref.tok").read_text()
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "ref.tok",
        "-i",
        "hyp.tok",
        "-tok",
        "none",
        "-s",
        "none",
        "--force",
    ]
    theirs = subprocess.run(
        [*command, "-b", "-w", "4"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = tokenised_bleu(hypotheses, references, "de")
    assert found.score == pytest.approx(float(theirs.stdout), abs=1e-3)
    assert "tok:none" in found.signature
    assert score(hypotheses, references).tokenised is None
    assert score(hypotheses, references, "de").tokenised == found


def test_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    for language in (None, "de"):
        scores = score(BAD, REFERENCES, language)
        (tmp_path / "scores.json").write_text(json.dumps(asdict(scores)))
        assert read_scores(tmp_path / "scores.json") == scores


@pytest.mark.parametrize(("hypotheses", "references"), [(59, 60), (60, 59), (0, 60)])
def test_different_counts_are_refused_with_both_numbers(hypotheses: int, references: int) -> None:
    with pytest.raises(UserError, match=f"{hypotheses} hypotheses but {references} references"):
        score(GOOD[:hypotheses], REFERENCES[:references])
    with pytest.raises(UserError, match="hypotheses but"):
        compare(GOOD[:references], GOOD[:hypotheses], REFERENCES[:references])


def test_nothing_is_not_scored() -> None:
    with pytest.raises(UserError, match="nothing to score"):
        score([], [])


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("a\u2028b\x85\rc\n\nlast".encode())
    assert read_lines(tmp_path / "f") == ["a\u2028b\x85\rc", "", "last"]
    (tmp_path / "f").write_bytes(b"")
    assert read_lines(tmp_path / "f") == []
    (tmp_path / "f").write_bytes(b"\n\n")
    assert read_lines(tmp_path / "f") == ["", ""]


def test_invalid_utf_8_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"good\nb\xe4d\n")
    with pytest.raises(UserError, match=r"f, line 2, is not valid UTF-8"):
        read_lines(tmp_path / "f")
    with pytest.raises(UserError, match="cannot read"):
        read_lines(tmp_path / "none")


def test_the_command_prints_scores_with_their_meaning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ref=REFERENCES, good=GOOD, bad=BAD)
    files = ["--reference", str(tmp_path / "ref"), "--hypothesis", str(tmp_path / "bad")]
    assert cli.main(["score", *files, "--baseline", str(tmp_path / "good")]) == 0
    bleu, chrf, comparison = capsys.readouterr().out.splitlines()
    assert bleu.startswith(f"BLEU {score(BAD, REFERENCES).bleu.score:.2f} ± ")
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in bleu
    assert "60 sentences" in chrf
    assert comparison.startswith(f"PRR {compare(BAD, GOOD, REFERENCES).prr:.1f} [")
    assert cli.main(["score", *files, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["comparison"] is None


def test_the_command_refuses_files_of_different_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, ref=REFERENCES, short=GOOD[:-4])
    assert (
        cli.main(
            ["score", "--reference", str(tmp_path / "ref"), "--hypothesis", str(tmp_path / "short")]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert "56 hypotheses but 60 references" in error
    assert error.count("\n") == 1
