"""Whether a difference of BLEU is more than chance, of sentences and of seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.report.published import prr
from fairseq_mhe.runs.scoring import RESAMPLES, SEED

#: A baseline with less BLEU has learned nothing: no ratio to it and no p-value says anything.
LEAST_BASELINE = 1.0


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline; all None where that has less than `LEAST_BASELINE`.

    ``prr``: performance retention ratio, 100 * BLEU / the baseline's BLEU; ``prr_low`` and
    ``prr_high``: its 95% bootstrap interval; ``p_value``: paired bootstrap
    test on BLEU.
    """

    prr: float | None
    prr_low: float | None
    prr_high: float | None
    p_value: float | None

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
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    tokenise: str = "13a",
) -> Comparison:
    """``compare_seeds`` with one training each."""
    return compare_seeds([hypotheses], [baseline], references, tokenise)


def compare_seeds(
    systems: Sequence[Sequence[str]],
    baselines: Sequence[Sequence[str]],
    references: Sequence[str],
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
        return Comparison(None, None, None, None)
    found = Comparison(prr(system, baseline), *_interval(*resampled), 1.0)
    if system == baseline:
        # sacreBLEU counts resamples whose difference is above the real one, so that equal systems
        # would get the least p.
        return found
    if len(systems) == len(baselines) == 1:
        return replace(
            found, p_value=_paired_bootstrap(systems[0], baselines[0], references, tokenise)
        )
    spread = np.abs(resampled[0] - resampled[1])
    above = np.sum(spread - spread.mean() > abs(system - baseline))
    return replace(found, p_value=float((above + 1) / (RESAMPLES + 1)))


def _paired_bootstrap(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str], tokenise: str
) -> float:
    """sacreBLEU's p-value."""
    named = [("baseline", baseline), ("system", hypotheses)]
    results = PairedTest(named, {"BLEU": BLEU(tokenize=tokenise)}, [references], "bs", RESAMPLES)()[
        1
    ]["BLEU"]
    _, result = (result for result in results if isinstance(result, Result))
    return float(result.p_value or 0)


def _interval(
    systems: NDArray[np.float64], baselines: NDArray[np.float64]
) -> tuple[float | None, float | None]:
    """The ends of the middle 95% of the PRRs that are known."""
    known = [prr(s, b) for s, b in zip(systems, baselines, strict=True) if b > 0]
    if not known:
        return None, None
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _bleu_counts(
    hypotheses: Sequence[str], references: Sequence[str], tokenise: str = "13a"
) -> NDArray[np.int64]:
    """(sentences, 10): both lengths, then matching n-grams and all n-grams, of order 1 to 4."""
    # The effective order changes sentence scores, which are not used, not the counts.
    bleu = BLEU(tokenize=tokenise, effective_order=True)
    found = [bleu.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True)]
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in found], dtype=np.int64)


def _bleu(counts: NDArray[np.int64]) -> float:
    """Corpus BLEU from the sum of sentences' counts."""
    system, reference, *rest = counts.tolist()
    found = BLEU.compute_bleu(rest[:4], rest[4:], system, reference, smooth_method="exp")
    return float(found.score)
