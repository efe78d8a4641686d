"""Whether a difference of BLEU is more than chance, of sentences and of seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """A system against a baseline; all None where that has less than `LEAST_BASELINE`.

    ``prr``: performance retention ratio, 100 * BLEU / the baseline's BLEU; ``prr_low`` and
    ``prr_high``: its 95% bootstrap interval; ``p_value``: paired bootstrap test on BLEU.
    """

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
    """PRR and p-value of mean BLEU over several trainings (seeds) of a system and of a baseline.

    A resample draws sentences, the same for all, and of each system's n seeds n - 1 with
    replacement (which gives a mean over few seeds its unbiased variance: Rao and Wu 1988); the rule
    that makes a p-value of the resampled differences is sacreBLEU's. So both the sentences and the
    seeds that happened to be chosen count as chance. With one training each the p-value is that of
    sacreBLEU's own paired bootstrap. The random seed is sacreBLEU's default.

    Args:
        systems: the hypotheses of each training of the system.
        baselines: those of the baseline; there may be another number of them.
        references: of every one of them.
        tokenise: sacreBLEU's tokeniser.
    """
    random, bleu = np.random.default_rng(SEED), BLEU(tokenize=tokenise)
    chosen = random.multinomial(  # (RESAMPLES, sentences): how often each sentence is drawn
        len(references), np.full(len(references), 1 / len(references)), size=RESAMPLES
    )
    means, resampled = [], []
    for trainings in (systems, baselines):
        # Of each training (sentences, 10): lengths, then matching and all n-grams of order 1 to 4.
        counts = [
            np.array(bleu._extract_corpus_statistics(hypotheses, [references]))
            for hypotheses in trainings
        ]
        means.append(np.mean([_bleu(bleu, of_one.sum(axis=0)) for of_one in counts]))
        # (trainings, RESAMPLES)
        scores = np.array(
            [[_bleu(bleu, row) for row in chosen @ of_one] for of_one in counts]
        )
        draws = (max(1, len(trainings) - 1), RESAMPLES)
        drawn = random.integers(len(trainings), size=draws)
        resampled.append(np.take_along_axis(scores, drawn, axis=0).mean(axis=0))
    system, baseline = map(float, means)
    if baseline < LEAST_BASELINE:
        return Comparison()
    known = resampled[1] > 0
    low, high = np.percentile(100 * resampled[0][known] / resampled[1][known], [2.5, 97.5])
    if system == baseline:
        p_value = 1.0  # sacreBLEU's rule would give equal systems the least p
    elif len(systems) == len(baselines) == 1:
        named = [("baseline", baselines[0]), ("system", systems[0])]
        _, tested = PairedTest(named, {"BLEU": bleu}, [references], "bs", RESAMPLES)()
        result = tested["BLEU"][1]
        assert isinstance(result, Result)  # noqa: S101 - only "System" has names
        p_value = float(result.p_value or 0)
    else:
        spread = np.abs(resampled[0] - resampled[1])
        above = np.sum(spread - spread.mean() > abs(system - baseline))
        p_value = float((above + 1) / (RESAMPLES + 1))
    return Comparison(prr(system, baseline), float(low), float(high), p_value)


def _bleu(bleu: BLEU, counts: np.ndarray) -> float:
    return float(bleu._compute_score_from_stats(counts.tolist()).score)
