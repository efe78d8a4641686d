"""Whether a difference of BLEU is more than chance, of sentences and of seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
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
    return (
        f"{baseline} has less than {LEAST_BASELINE:g} BLEU: it learned nothing to compare with"
    )


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
    random = np.random.default_rng(SEED)
    chosen = random.multinomial(  # (RESAMPLES, sentences): how often each sentence is drawn
        len(references), np.full(len(references), 1 / len(references)), size=RESAMPLES
    )
    means, resampled = [], []
    for runs in (systems, baselines):
        counts = [_bleu_counts(hypotheses, references, tokenise) for hypotheses in runs]
        means.append(float(np.mean([_bleu(of_run.sum(axis=0)) for of_run in counts])))
        # (seeds, RESAMPLES)
        scores = np.array([[_bleu(row) for row in chosen @ of_run] for of_run in counts])
        drawn = random.integers(len(runs), size=(max(1, len(runs) - 1), RESAMPLES))
        resampled.append(np.take_along_axis(scores, drawn, axis=0).mean(axis=0))
    system, baseline = means
    if baseline < LEAST_BASELINE:
        return Comparison()
    known = resampled[1] > 0
    low, high = np.percentile(100 * resampled[0][known] / resampled[1][known], [2.5, 97.5])
    p_value = 1.0  # sacreBLEU's rule would give equal systems the least p
    if system != baseline and len(systems) == len(baselines) == 1:
        p_value = _paired_bootstrap(systems[0], baselines[0], references, tokenise)
    elif system != baseline:
        spread = np.abs(resampled[0] - resampled[1])
        above = np.sum(spread - spread.mean() > abs(system - baseline))
        p_value = float((above + 1) / (RESAMPLES + 1))
    return Comparison(prr(system, baseline), float(low), float(high), p_value)


def _paired_bootstrap(
    system: Texts, baseline: Texts, references: Texts, tokenise: str
) -> float:
    """sacreBLEU's p-value."""
    named = [("baseline", baseline), ("system", system)]
    metrics = {"BLEU": BLEU(tokenize=tokenise)}
    _, scores = PairedTest(named, metrics, [references], "bs", RESAMPLES)()
    result = scores["BLEU"][1]
    assert isinstance(result, Result)  # noqa: S101 - the systems' names are under another key
    return float(result.p_value or 0)


def _bleu_counts(hypotheses: Texts, references: Texts, tokenise: str) -> NDArray[np.int64]:
    """(sentences, 10): both lengths, then matching n-grams and all n-grams, of order 1 to 4."""
    # The effective order changes sentence scores, which are not used, not the counts.
    bleu = BLEU(tokenize=tokenise, effective_order=True)
    scores = [bleu.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True)]
    return np.array(
        [[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], dtype=np.int64
    )


def _bleu(counts: NDArray[np.int64]) -> float:
    """Corpus BLEU from the sum of sentences' counts."""
    system, reference, *rest = counts.tolist()
    bleu = BLEU.compute_bleu(rest[:4], rest[4:], system, reference, smooth_method="exp")
    return float(bleu.score)
