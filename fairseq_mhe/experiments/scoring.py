"""``fairseq-mhe score``: detokenised text against references with sacreBLEU; every number with what it means."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.errors import UserError

#: Bootstrap resamples, for confidence intervals and p-values.
RESAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """A score (0 to 100), the half width of its 95% bootstrap confidence interval, and sacreBLEU's signature."""

    score: float
    confidence: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """The scores of one system."""

    bleu: Score
    chrf: Score
    sentences: int


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline.

    ``prr``: performance retention ratio, 100 * BLEU / the baseline's BLEU, None where the baseline has 0;
    ``prr_low`` and ``prr_high``: its 95% bootstrap interval; ``p_value``: paired bootstrap test on BLEU.
    """

    prr: float | None
    prr_low: float | None
    prr_high: float | None
    p_value: float


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """BLEU and chrF of detokenised hypotheses, with sacreBLEU's defaults.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    check_counts(hypotheses, references)
    bleu, chrf = BLEU(), CHRF()
    test = PairedTest([("system", hypotheses)], {"BLEU": bleu, "chrF": chrf}, [references], "bs", RESAMPLES)
    results = test()[1]
    return Scores(_score(bleu, "BLEU", results), _score(chrf, "chrF2", results), len(hypotheses))


def _score(metric: BLEU | CHRF, name: str, results: Mapping[str, Sequence[str | Result]]) -> Score:
    """The only system's score by a metric, which sacreBLEU calls ``name``."""
    result = results[name][0]
    assert isinstance(result, Result)  # noqa: S101 - str is the system's name, under another key
    return Score(round(result.score, 4), round(float(result.ci or 0), 4), str(metric.get_signature()))


def compare(hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str]) -> Comparison:
    """PRR and p-value of a system against a baseline on the same sentences.

    The p-value is sacreBLEU's paired bootstrap (its seed: $SACREBLEU_SEED or 12345), and so are PRR's resamples.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    check_counts(hypotheses, references)
    check_counts(baseline, references)
    test = PairedTest([("baseline", baseline), ("system", hypotheses)], {"BLEU": BLEU()}, [references], "bs", RESAMPLES)
    baseline_result, result = (r for r in test()[1]["BLEU"] if isinstance(r, Result))
    prr = _ratio(result.score, baseline_result.score)
    low, high = _prr_interval(hypotheses, baseline, references) if prr is not None else (None, None)
    # sacreBLEU counts resamples whose difference is above the real one, so that equal systems would get the least p.
    p_value = 1.0 if result.score == baseline_result.score else float(result.p_value or 0)
    return Comparison(prr, low, high, p_value)


def check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse what would be scored wrongly in silence: sacreBLEU compares as many lines as the shorter side has.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: "
            "score the same sentences in the same order, one a line"
        )
    if not references:
        raise UserError("nothing to score: there are no sentences")


def _prr_interval(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str]
) -> tuple[float | None, float | None]:
    """The middle 95% of PRR over resamples of the sentences, the same for both systems."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    random = np.random.default_rng(None if seed.lower() == "none" else int(seed))
    chosen = random.multinomial(len(references), np.full(len(references), 1 / len(references)), size=RESAMPLES)
    system, base = (chosen @ _bleu_counts(h, references) for h in (hypotheses, baseline))  # (RESAMPLES, 10)
    ratios = [_ratio(_bleu(s), _bleu(b)) for s, b in zip(system, base, strict=True)]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return None, None
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _bleu_counts(hypotheses: Sequence[str], references: Sequence[str]) -> NDArray[np.int64]:
    """(sentences, 10): hypothesis and reference lengths, matching n-grams, and all n-grams of order 1 to 4."""
    bleu = BLEU(effective_order=True)  # changes sentence scores, which are not used, not the counts
    found = [bleu.sentence_score(h, [r]) for h, r in zip(hypotheses, references, strict=True)]
    return np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in found], dtype=np.int64)


def _bleu(counts: NDArray[np.int64]) -> float:
    """Corpus BLEU from the sum of sentences' counts."""
    system, reference, *rest = counts.tolist()
    return float(BLEU.compute_bleu(rest[:4], rest[4:], system, reference, smooth_method="exp").score)


def _ratio(system: float, baseline: float) -> float | None:
    return 100 * system / baseline if baseline > 0 else None


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 text; only a line feed ends one, so that no exotic separator shifts the sentences.

    Raises:
        UserError: the file cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    decoded = []
    for number, line in enumerate(lines, start=1):
        try:
            decoded.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number}, is not valid UTF-8: convert the file to UTF-8") from None
    return decoded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe score``."""
    for name in ("reference", "hypothesis"):
        parser.add_argument(
            f"--{name}", type=Path, required=True, metavar="F", help=f"{name}s, detokenised, one a line"
        )
    parser.add_argument("--baseline", type=Path, metavar="F", help="another system's, to compare with: PRR and p-value")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print BLEU, chrF and, with a baseline, the comparison."""
    hypotheses, references = read_lines(args.hypothesis), read_lines(args.reference)
    scores = score(hypotheses, references)
    comparison = compare(hypotheses, read_lines(args.baseline), references) if args.baseline else None
    if args.json:
        print(json.dumps({**asdict(scores), "comparison": comparison and asdict(comparison)}, indent=2))
        return
    for name, value in (("BLEU", scores.bleu), ("chrF", scores.chrf)):
        print(f"{name} {value.score:.2f} ± {value.confidence:.2f}  ({value.signature}, {scores.sentences} sentences)")
    if comparison:
        print(describe(comparison))


def describe(comparison: Comparison) -> str:
    """A comparison in one line."""
    test = f"p = {comparison.p_value:.4f} (paired bootstrap, {RESAMPLES} resamples)"
    if comparison.prr is None:
        return f"PRR undefined: the baseline's BLEU is 0; {test}"
    return f"PRR {comparison.prr:.1f} [{comparison.prr_low:.1f}, {comparison.prr_high:.1f}]; {test}"
