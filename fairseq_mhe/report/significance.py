"""Compare kinds by BLEU: difference, PRR, 95% intervals and two-sided p from one bootstrap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU

from fairseq_mhe.report.published import prr
from fairseq_mhe.runs import scoring

#: A baseline with less BLEU has learned nothing: PRR and p-values against it mean nothing.
MIN_BASELINE_BLEU = 1.0
Texts = Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """A system's mean BLEU beside a baseline's: their difference in BLEU, and PRR in percent.

    The intervals (95%) and the two-sided p-value come from the same resamples: both intervals
    exclude equality just if p is below 0.05. All values are None below `MIN_BASELINE_BLEU`.
    """

    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    prr: float | None = None
    prr_low: float | None = None
    prr_high: float | None = None
    p_value: float | None = None

    def describe(self) -> str:
        """Return the comparison in one line."""
        if self.prr is None:
            return f"PRR -, p - ({too_weak('the baseline')})"
        difference = f"{self.difference:+.2f} BLEU"
        interval = f"[{self.difference_low:+.2f}, {self.difference_high:+.2f}]"
        prr_interval = f"[{self.prr_low:.1f}, {self.prr_high:.1f}]"
        test = f"two-sided paired bootstrap, {scoring.RESAMPLES:,} resamples"
        return (
            f"PRR {self.prr:.1f} {prr_interval}; difference {difference} {interval}; "
            f"p = {self.p_value:.4f} ({test})"
        )


def too_weak(baseline: str) -> str:
    """Return the reason why PRR and p are missing."""
    return f"{baseline} has less than {MIN_BASELINE_BLEU:g} BLEU: it has not learned to translate"


@dataclass(frozen=True)
class Sample:
    """BLEU of each seed of a kind, on all sentences and on each resample of the sentences."""

    scores: np.ndarray  # (seeds,)
    resampled: np.ndarray  # (seeds, RESAMPLES)

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    def half_width(self) -> float:
        """Return half the width of the 95% interval of the mean, over sentences and seeds."""
        low, high = scoring.interval(_drawn([self], [1]))
        return (high - low) / 2


def sample(systems: Sequence[Texts], references: Texts, tokenise: str = "13a") -> Sample:
    """Score the translations of each seed of a kind."""
    bleu = BLEU(tokenize=tokenise)
    counts = []
    for hypotheses in systems:
        counts.append(scoring.sentence_statistics(bleu, hypotheses, references))
    stacked = np.stack(counts, axis=1)  # (sentences, seeds, 10)
    sums = scoring.resampled_sums(stacked.reshape(len(references), -1))
    sums = sums.reshape(len(sums), *stacked.shape[1:])  # (RESAMPLES, seeds, 10)
    return Sample(bleu_of(stacked.sum(axis=0)), bleu_of(sums).T)


def compare(
    systems: Sequence[Texts],
    baselines: Sequence[Texts],
    references: Texts,
    tokenise: str = "13a",
) -> Comparison:
    """Compare the mean BLEU of a system with that of a baseline; each has a text for each seed."""
    return compare_samples(
        sample(systems, references, tokenise), sample(baselines, references, tokenise)
    )


def compare_samples(system: Sample, baseline: Sample) -> Comparison:
    """Compare two samples of the same sentences; see `_drawn` for what counts as chance."""
    if baseline.mean < MIN_BASELINE_BLEU:
        return Comparison()
    differences = _drawn([system, baseline], [1, -1])
    of_baseline = baseline.resampled.mean(axis=0)
    of_baseline = np.where(of_baseline > 0, of_baseline, baseline.mean)
    ratios = 100 + 100 * differences / of_baseline
    return Comparison(
        system.mean - baseline.mean,
        *scoring.interval(differences),
        prr(system.mean, baseline.mean),
        *scoring.interval(ratios),
        scoring.p_value(differences),
    )


def _drawn(samples: Sequence[Sample], signs: Sequence[int]) -> np.ndarray:
    """Draw the signed sum of means under other sentences and other seeds: (RESAMPLES,).

    Sentences are resampled, the same for all samples. Two or three seeds are too few to resample:
    each draw adds a value of Student's t-distribution, scaled by the standard deviation between
    seeds, which all samples share. What a seed does to single sentences is in the bootstrap as
    well as in the seeds' deviation; it is taken out of the bootstrap, or it would count twice
    (Owen 2007, "The pigeonhole bootstrap"). With one seed a kind, sentences alone are chance: the
    result speaks about these models, not about their kinds.
    """
    estimate = sum(sign * each.mean for sign, each in zip(signs, samples, strict=True))
    means = [each.resampled.mean(axis=0) for each in samples]
    resampled = np.sum(
        [sign * mean for sign, mean in zip(signs, means, strict=True)], axis=0
    )
    degrees_of_freedom = sum(len(each.scores) - 1 for each in samples)
    if not degrees_of_freedom:
        return resampled
    between_seeds = within_sentences = 0.0  # variances
    for each, mean in zip(samples, means, strict=True):
        between_seeds += np.sum((each.scores - each.mean) ** 2) / degrees_of_freedom
        within_sentences += (
            np.sum(np.var(each.resampled - mean, axis=1)) / degrees_of_freedom
        )
    # The variance of a mean over n seeds is 1/n of one seed's.
    shares = sum(1 / len(each.scores) for each in samples)
    whole = np.var(resampled)
    common = max(0.0, 1 - within_sentences * shares / whole) if whole else 1.0
    random = np.random.default_rng(scoring.SEED)
    of_seeds = random.standard_t(degrees_of_freedom, size=len(resampled))
    by_sentences = np.sqrt(common) * (resampled - estimate)
    return estimate + by_sentences + np.sqrt(between_seeds * shares) * of_seeds


def bleu_of(sums: np.ndarray) -> np.ndarray:
    """Return sacreBLEU's BLEU of summed counts (..., 10), as in `sentence_statistics`: (...).

    It is `BLEU.compute_bleu` for many sums at once, with the default smoothing, "exp".
    """
    length, reference_length = sums[..., 0], sums[..., 1]
    matches, ngrams = sums[..., 2:6], sums[..., 6:10]
    # The first order without a match counts half a match, the second a quarter, and so on.
    unmatched = matches == 0
    smoothed = np.where(unmatched, 0.5 ** np.cumsum(unmatched, axis=-1), matches)
    valid = (ngrams > 0).all(axis=-1) & (matches > 0).any(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.exp(np.log(smoothed / ngrams).mean(axis=-1))
        penalty = np.exp(np.minimum(0, 1 - reference_length / length))
        score = 100 * penalty * precision
    return np.where(valid, score, 0.0)
