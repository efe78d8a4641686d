"""The comparison of BLEU: difference, PRR, intervals and p agree, and equal kinds rarely differ."""

import random
from statistics import mean, stdev

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy import stats

from fairseq_mhe.report.significance import Comparison, bleu_of, compare, sample
from fairseq_mhe.runs import scoring
from tests.fixtures.translations import BAD, GOOD, REFERENCES, noisy

#: Shares of wrong words: of pairs of systems that differ much, a little, and by chance.
PAIRS = [(0.4, 0.1), (0.14, 0.1), (0.12, 0.1), (0.1, 0.1), (0.1, 0.12)]


def bleu(hypotheses: list[str]) -> float:
    return BLEU().corpus_score(hypotheses, [REFERENCES]).score


def test_bleu_of_many_sums_equals_sacrebleus() -> None:
    """Among the sums are orders without a match or without an n-gram."""
    rng = np.random.default_rng(1)
    ngrams = rng.integers(1, 6, size=(500, 4)) * (rng.random((500, 4)) > 0.1)
    matches = rng.integers(0, ngrams + 1)
    lengths = rng.integers(1, 9, size=(500, 2))
    sums = np.concatenate([lengths, matches, ngrams], axis=1).astype(float)
    expected = []
    for length, reference_length, *counts in sums.astype(int).tolist():
        arguments = counts[:4], counts[4:], length, reference_length
        expected.append(BLEU.compute_bleu(*arguments, smooth_method="exp").score)
    assert bleu_of(sums).tolist() == pytest.approx(expected)
    assert 50 < np.count_nonzero(expected) < 450


@pytest.mark.parametrize(("worse", "better"), PAIRS)
@pytest.mark.parametrize("seeds", [1, 3])
def test_p_and_both_intervals_agree(worse: float, better: float, seeds: int) -> None:
    """sacreBLEU's rule gave p = 0.05 beside a PRR of 94.6 to 100.5."""
    systems = [noisy(worse, 10 + seed) for seed in range(seeds)]
    baselines = [noisy(better, 20 + seed) for seed in range(seeds)]
    result = compare(systems, baselines, REFERENCES)
    significant = result.p_value < 0.05
    assert significant == (not result.difference_low <= 0 <= result.difference_high)
    assert significant == (not result.prr_low <= 100 <= result.prr_high)
    difference = mean(map(bleu, systems)) - mean(map(bleu, baselines))
    assert result.difference == pytest.approx(difference)
    ratio = 100 * mean(map(bleu, systems)) / mean(map(bleu, baselines))
    assert result.prr == pytest.approx(ratio)
    assert result.prr_low < ratio < result.prr_high
    assert result == compare(systems, baselines, REFERENCES), "the seed is fixed"
    turned = compare(baselines, systems, REFERENCES)
    assert turned.p_value == pytest.approx(result.p_value, abs=0.01), "two-sided"
    assert turned.difference_low == pytest.approx(-result.difference_high, abs=0.1)


@pytest.mark.parametrize(("worse", "better"), PAIRS[1:3])
def test_p_of_one_seed_is_near_that_of_a_two_sided_randomisation(
    worse: float, better: float
) -> None:
    """Another test of sacreBLEU's, which permutes sentences, finds about the same p-values."""
    system, baseline = noisy(worse, 5), noisy(better, 6)
    named = [("baseline", baseline), ("system", system)]
    test = PairedTest(named, {"BLEU": BLEU()}, [REFERENCES], "ar", 10_000)
    expected = test()[1]["BLEU"][1].p_value
    assert compare([system], [baseline], REFERENCES).p_value == pytest.approx(expected, abs=0.06)


def test_a_system_does_not_differ_from_itself() -> None:
    result = compare([BAD] * 2, [BAD] * 2, REFERENCES)
    assert result == Comparison(0, 0, 0, 100, 100, 100, 1)


def test_the_interval_of_a_mean_covers_seeds_and_sentences() -> None:
    """The mean of the seeds' own half-widths hid that the seeds themselves differ."""
    single = sample([BAD], REFERENCES).half_width()
    assert sample([BAD] * 3, REFERENCES).half_width() == pytest.approx(single)
    apart = [noisy(0.05, 1), noisy(0.25, 2), noisy(0.45, 3)]
    by_seeds = stats.t.ppf(0.975, 2) * stdev(map(bleu, apart)) / 3**0.5
    half_width = sample(apart, REFERENCES).half_width()
    assert single < by_seeds < half_width < 1.1 * by_seeds


def test_seeds_that_differ_much_are_compared_as_by_a_t_test() -> None:
    """The first seeds alone would differ significantly; the other seeds differ the other way."""
    system = [BAD, noisy(0.1, 7), noisy(0.1, 8)]
    baseline = [GOOD, noisy(0.4, 9), noisy(0.25, 10)]
    assert compare(system[:1], baseline[:1], REFERENCES).p_value < 0.01
    expected = stats.ttest_ind(list(map(bleu, system)), list(map(bleu, baseline))).pvalue
    assert compare(system, baseline, REFERENCES).p_value == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (3, 0.05)])
def test_equal_kinds_differ_significantly_in_about_5_percent(
    seeds: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the null hypothesis the old rule found 11 to 19% of differences significant."""
    monkeypatch.setattr(scoring, "RESAMPLES", 500)
    chance = random.Random(11)

    def trainings() -> list[list[str]]:
        shares = [max(0.02, chance.gauss(0.25, spread)) for _ in range(seeds)]
        return [noisy(share, chance.randrange(1 << 30)) for share in shares]

    found = 0
    for _ in range(100):
        found += compare(trainings(), trainings(), REFERENCES).p_value < 0.05
    assert 1 <= found <= 12  # in 99.5% of binomials with 100 trials of 5%


def test_a_baseline_that_learned_nothing_gives_dashes() -> None:
    """A baseline of 0.08 BLEU once gave "PRR 512.1%, p 0.0010"."""
    weak = ["x y z w v" for _ in REFERENCES[1:]] + [REFERENCES[0]]
    weak[5] = " ".join(REFERENCES[5].split()[:1])
    of_two = compare([GOOD] * 2, [weak] * 2, REFERENCES)
    assert compare([GOOD], [weak], REFERENCES) == of_two == Comparison()
    assert of_two.describe().startswith("PRR -, p -")
    assert compare([weak], [GOOD], REFERENCES).p_value is not None, "a weak system is compared"


def test_a_comparison_uses_the_tokeniser_of_the_scores() -> None:
    """13a takes a whole Chinese line as one word, so that even good lines have no BLEU."""
    lines = [f"今天山里天气很好我们一起去看那些花草树木{number}" for number in range(20)]
    worse = [line.replace("一起", "") for line in lines]
    assert compare([worse], [lines], lines).prr is None
    comparison = compare([worse], [lines], lines, "zh")
    assert comparison.prr == pytest.approx(BLEU(tokenize="zh").corpus_score(worse, [lines]).score)
