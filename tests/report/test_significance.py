"""The comparison of BLEU: PRR, interval and p-value; equal systems rarely differ."""

import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest
from sacrebleu.metrics import BLEU

from fairseq_mhe.report import significance
from fairseq_mhe.report.significance import Comparison
from fairseq_mhe.report.significance import compare as compare_seeds
from tests.fixtures.translations import BAD, GOOD, REFERENCES, noisy, write


def compare(system: list[str], baseline: list[str], *more: list[str] | str) -> Comparison:
    """Compare a system with a baseline, of one training each."""
    return compare_seeds([system], [baseline], *more)


def test_the_p_value_equals_that_of_the_sacrebleu_command(tmp_path: Path) -> None:
    close = noisy(0.12, 3)
    write(tmp_path, ref=REFERENCES, base=GOOD, system=close)
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "base", "system"]
    command += ["--paired-bs", "-f", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout)[1]["BLEU"]
    assert compare(close, GOOD, REFERENCES).p_value == pytest.approx(theirs["p_value"], abs=1e-4)
    equal = compare_seeds([close] * 3, [GOOD] * 3, REFERENCES)
    assert equal.p_value == pytest.approx(theirs["p_value"], abs=0.05)  # our own resamples
    alone = compare(close, REFERENCES, REFERENCES)  # PRR is BLEU
    assert (alone.prr_high - alone.prr_low) / 2 == pytest.approx(theirs["ci"], rel=0.08)


def test_a_baseline_that_learned_nothing_gives_dashes() -> None:
    """A baseline of 0.08 BLEU once gave "PRR 512.1%, p 0.0010"."""
    weak = ["x y z w v" for _ in REFERENCES[1:]] + [REFERENCES[0]]
    weak[5] = " ".join(REFERENCES[5].split()[:1])
    of_two = compare_seeds([GOOD] * 2, [weak] * 2, REFERENCES)
    assert compare(GOOD, weak, REFERENCES) == of_two == Comparison()
    assert of_two.describe() == (
        "PRR -, p - (the baseline has less than 1 BLEU: it has not learned to translate)"
    )
    assert compare(weak, GOOD, REFERENCES).p_value is not None, "a weak system is compared"


@pytest.mark.parametrize(("systems", "baselines"), [([2], [1]), ([1, 2, 3], [4, 5])])
def test_prr_is_the_ratio_of_mean_bleu_within_its_interval(
    systems: list[int], baselines: list[int]
) -> None:
    compared = ([noisy(0.4, seed) for seed in systems], [noisy(0.1, seed) for seed in baselines])
    means = [mean(BLEU().corpus_score(h, [REFERENCES]).score for h in runs) for runs in compared]
    comparison = compare_seeds(*compared, REFERENCES)
    ratio = 100 * means[0] / means[1]
    assert comparison.prr == pytest.approx(ratio)
    assert (comparison.prr_low or 100) < ratio < (comparison.prr_high or 0) < 100
    assert 0 < comparison.p_value < 0.01
    assert comparison == compare_seeds(*compared, REFERENCES), "the seed is fixed"
    same = [[BAD] * len(baselines)] * 2
    assert [*vars(compare_seeds(*same, REFERENCES)).values()] == pytest.approx([100, 100, 100, 1])


def test_a_difference_of_the_first_seeds_alone_is_not_significant() -> None:
    """The other seeds differ the other way: a test of the first seeds alone would find p < 0.01."""
    system, baseline = ([BAD, noisy(0.1, 7), noisy(0.1, 8)], [GOOD, noisy(0.4, 9), noisy(0.25, 10)])
    assert compare(system[0], baseline[0], REFERENCES).p_value < 0.01
    assert compare_seeds(system, baseline, REFERENCES).p_value > 0.1


def test_differing_seeds_widen_the_interval() -> None:
    """Three equal seeds give the interval of one seed; three different seeds give a wider one."""
    apart = [noisy(0.05, 1), noisy(0.25, 2), noisy(0.45, 3)]
    same, varied = (compare_seeds(runs, [GOOD] * 3, REFERENCES) for runs in ([BAD] * 3, apart))
    single = compare(BAD, GOOD, REFERENCES)
    widths = [(c.prr_high or 0) - (c.prr_low or 0) for c in (single, same, varied)]
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] > 5.4 * widths[1]  # 5.2 if a resample drew n seeds, not n - 1: too little


def test_equal_systems_with_different_seeds_rarely_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """All seeds have one distribution, so a test at 5% may find few of 15 pairs different."""
    monkeypatch.setattr(significance, "RESAMPLES", 100)
    rng = random.Random(11)

    def trainings() -> list[list[str]]:
        shares = [max(0.02, rng.gauss(0.25, 0.05)) for _ in range(3)]
        return [noisy(share, rng.randrange(1 << 30)) for share in shares]

    pairs = [(trainings(), trainings()) for _ in range(15)]
    by_first = sum(compare_seeds(a[:1], b[:1], REFERENCES).p_value < 0.05 for a, b in pairs)
    by_all = sum(compare_seeds(a, b, REFERENCES).p_value < 0.05 for a, b in pairs)
    assert by_all <= 3 < 5 <= by_first


def test_a_comparison_uses_the_tokeniser_of_the_scores() -> None:
    """13a takes a whole Chinese line as one word, so that even good lines have no BLEU."""
    lines = [f"今天山里天气很好我们一起去看那些花草树木{number}" for number in range(20)]
    worse = [line.replace("一起", "") for line in lines]
    assert compare(worse, lines, lines).prr is None
    comparison = compare(worse, lines, lines, "zh")
    assert comparison.prr == pytest.approx(BLEU(tokenize="zh").corpus_score(worse, [lines]).score)
