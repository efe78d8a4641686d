"""Test whether a difference in BLEU exceeds the chance of test sentences and of seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.report.published import prr
from fairseq_mhe.runs.scoring import RESAMPLES, SEED

#: A baseline with less BLEU has learned nothing: PRR and p-values against it mean nothing.
MIN_BASELINE_BLEU = 1.0
Texts = Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """PRR, its 95% interval and p-value, by paired bootstrap; None below `MIN_BASELINE_BLEU`."""

    prr: float | None = None
    prr_low: float | None = None
    prr_high: float | None = None
    p_value: float | None = None

    def describe(self) -> str:
        """Return the comparison in one line."""
        if self.prr is None:
            return f"PRR -, p - ({too_weak('the baseline')})"
        test = f"p = {self.p_value:.4f} (paired bootstrap, {RESAMPLES} resamples)"
        return f"PRR {self.prr:.1f} [{self.prr_low:.1f}, {self.prr_high:.1f}]; {test}"


def too_weak(baseline: str) -> str:
    """Return the reason why a dash stands in place of PRR and p."""
    return f"{baseline} has less than {MIN_BASELINE_BLEU:g} BLEU: it has not learned to translate"


def compare(
    systems: Sequence[Texts],
    baselines: Sequence[Texts],
    references: Texts,
    tokenise: str = "13a",
) -> Comparison:
    """Compare the mean BLEU of a system with that of a baseline; each has a text for each seed.

    A resample draws sentences, the same for both, and n - 1 (at least one) of the n seeds of each,
    all with replacement. So sentences and seeds both count as chance; n - 1 draws give the mean of
    few seeds its unbiased variance (Rao and Wu 1988). The p-value of the differences follows
    sacreBLEU's rule; if both have one seed, sacreBLEU's own paired bootstrap computes it.
    """
    random = np.random.default_rng(SEED)
    bleu = BLEU(tokenize=tokenise)
    count = len(references)
    # How often each resample draws each sentence: (RESAMPLES, sentences)
    times_drawn = random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)

    def mean_bleu(texts: Sequence[Texts]) -> tuple[float, np.ndarray]:
        """Return the mean over seeds on all sentences, and of each resample: (RESAMPLES,)."""
        scores = []
        resampled = []
        for hypotheses in texts:
            # (sentences, 10): two lengths, matching n-grams and all n-grams of orders 1 to 4
            counts = np.array(bleu._extract_corpus_statistics(hypotheses, [references]))
            scores.append(_bleu(bleu, counts.sum(axis=0)))
            resampled.append([_bleu(bleu, resample) for resample in times_drawn @ counts])
        shape = (max(1, len(texts) - 1), RESAMPLES)  # (n - 1, RESAMPLES)
        seeds = random.integers(len(texts), size=shape)
        drawn = np.take_along_axis(np.array(resampled), seeds, axis=0)  # the same shape
        mean_score = statistics.mean(scores)
        return mean_score, drawn.mean(axis=0)

    system, resampled_system = mean_bleu(systems)
    baseline, resampled_baseline = mean_bleu(baselines)
    if baseline < MIN_BASELINE_BLEU:
        return Comparison()
    nonzero = resampled_baseline > 0
    ratios = 100 * resampled_system[nonzero] / resampled_baseline[nonzero]
    low, high = np.percentile(ratios, [2.5, 97.5])
    if system == baseline:
        p_value = 1.0  # sacreBLEU's rule would give equal systems the smallest p-value
    elif len(systems) == len(baselines) == 1:
        named = [("baseline", baselines[0]), ("system", systems[0])]
        _, tested = PairedTest(named, {"BLEU": bleu}, [references], "bs", RESAMPLES)()
        p_value = float(cast(Result, tested["BLEU"][1]).p_value or 0)
    else:
        differences = np.abs(resampled_system - resampled_baseline)
        larger = np.sum(differences - differences.mean() > abs(system - baseline))
        p_value = float((larger + 1) / (RESAMPLES + 1))
    return Comparison(prr(system, baseline), float(low), float(high), p_value)


def _bleu(bleu: BLEU, counts: np.ndarray) -> float:
    return float(bleu._compute_score_from_stats(counts.tolist()).score)
