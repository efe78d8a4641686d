"""Whether a difference of BLEU is more than chance, of sentences and of seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.report.published import prr
from fairseq_mhe.runs.scoring import RESAMPLES, SEED

#: A baseline with less BLEU has learned nothing: no ratio to it and no p-value says anything.
LEAST_BASELINE = 1.0
Texts = Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """PRR with its 95% interval, and p, by paired bootstrap; None below `LEAST_BASELINE`."""

    prr: float | None = None
    prr_low: float | None = None
    prr_high: float | None = None
    p_value: float | None = None

    def describe(self) -> str:
        """The comparison in one line."""
        if self.prr is None:
            return f"PRR -, p - ({too_weak('the baseline')})"
        test = f"p = {self.p_value:.4f} (paired bootstrap, {RESAMPLES} resamples)"
        return f"PRR {self.prr:.1f} [{self.prr_low:.1f}, {self.prr_high:.1f}]; {test}"


def too_weak(baseline: str) -> str:
    """Why there is a dash in place of PRR and p."""
    return f"{baseline} has less than {LEAST_BASELINE:g} BLEU: it learned nothing to compare with"


def retained(score: float, baseline: float) -> float | None:
    """PRR as tables have it; None where the baseline has less than `LEAST_BASELINE`."""
    return round(prr(score, baseline), 2) if baseline >= LEAST_BASELINE else None


def compare(
    systems: Sequence[Texts],
    baselines: Sequence[Texts],
    references: Texts,
    tokenise: str = "13a",
) -> Comparison:
    """PRR and p-value of mean BLEU, from hypotheses of each seed of a system and of a baseline.

    A resample draws sentences, the same for all, and of each system's n seeds n - 1 with
    replacement (which gives a mean over few seeds its unbiased variance: Rao and Wu 1988): both
    the sentences and the seeds count as chance. The rule that makes a p-value of the differences is
    sacreBLEU's; with one training each it is that of sacreBLEU's own paired bootstrap.
    """
    random = np.random.default_rng(SEED)
    bleu = BLEU(tokenize=tokenise)
    count = len(references)
    # (RESAMPLES, sentences): how often each sentence is drawn
    chosen = random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    means = []
    resampled = []
    for trainings in (systems, baselines):
        of_trainings = []
        scores = []
        for hypotheses in trainings:
            # (sentences, 10): lengths, then matching and all n-grams of order 1 to 4
            counts = np.array(bleu._extract_corpus_statistics(hypotheses, [references]))
            of_trainings.append(_bleu(bleu, counts.sum(axis=0)))
            scores.append([_bleu(bleu, resample) for resample in chosen @ counts])
        means.append(statistics.mean(of_trainings))
        draws = (max(1, len(trainings) - 1), RESAMPLES)
        drawn = random.integers(len(trainings), size=draws)
        of_draws = np.take_along_axis(np.array(scores), drawn, axis=0)
        resampled.append(of_draws.mean(axis=0))
    system, baseline = means
    if baseline < LEAST_BASELINE:
        return Comparison()
    known = resampled[1] > 0
    ratios = 100 * resampled[0][known] / resampled[1][known]
    low, high = np.percentile(ratios, [2.5, 97.5])
    if system == baseline:
        p_value = 1.0  # sacreBLEU's rule would give equal systems the least p
    elif len(systems) == len(baselines) == 1:
        named = [("baseline", baselines[0]), ("system", systems[0])]
        _, tested = PairedTest(named, {"BLEU": bleu}, [references], "bs", RESAMPLES)()
        p_value = float(cast(Result, tested["BLEU"][1]).p_value or 0)
    else:
        spread = np.abs(resampled[0] - resampled[1])
        above = np.sum(spread - spread.mean() > abs(system - baseline))
        p_value = float((above + 1) / (RESAMPLES + 1))
    return Comparison(prr(system, baseline), float(low), float(high), p_value)


def _bleu(bleu: BLEU, counts: np.ndarray) -> float:
    return float(bleu._compute_score_from_stats(counts.tolist()).score)
