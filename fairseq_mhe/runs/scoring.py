"""``fairseq-mhe score``: detokenised text against references with sacreBLEU; every number with what it means."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.prepare.tokenise import tokeniser

#: A hyphen inside a word; as in Perl, one of two with a single letter between them.
_COMPOUND = re.compile(r"(\S)-(\S)")
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
    """The scores of one system; ``tokenised`` is None where the language is not known."""

    bleu: Score
    chrf: Score
    sentences: int
    tokenised: Score | None = None


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline.

    ``prr``: performance retention ratio, 100 * BLEU / the baseline's BLEU, None where the baseline
    has 0; ``prr_low`` and ``prr_high``: its 95% bootstrap interval; ``p_value``: paired bootstrap
    test on BLEU.
    """

    prr: float | None
    prr_low: float | None
    prr_high: float | None
    p_value: float


def score(
    hypotheses: Sequence[str], references: Sequence[str], language: str | None = None
) -> Scores:
    """BLEU and chrF of detokenised hypotheses, with sacreBLEU's defaults.

    Args:
        hypotheses: plain text, one sentence each.
        references: theirs, in the same order.
        language: of both; with it there is BLEU as the older literature counted it, too
        (``tokenised_bleu``).

    Raises:
        UserError: no sentences, or counts that differ.
    """
    check_counts(hypotheses, references)
    bleu, chrf = BLEU(), CHRF()
    results = _bootstrapped(hypotheses, references, {"BLEU": bleu, "chrF": chrf})
    tokenised = tokenised_bleu(hypotheses, references, language) if language else None
    return Scores(
        _score(bleu, "BLEU", results), _score(chrf, "chrF2", results), len(hypotheses), tokenised
    )


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU on Moses' tokens with hyphenated compounds split, without smoothing.

    This is how Vaswani et al. 2017 and others of that time scored English-German: tensor2tensor's
    get_ende_bleu.sh, tokenizer.perl -l de, ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` and
    multi-bleu.perl. It is higher than detokenised BLEU by about a point and does not compare with
    it.
    """
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    tokenise = tokeniser("moses", language)
    split = [
        [_COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokenise(line)) for line in lines]
        for lines in (hypotheses, references)
    ]
    return _score(bleu, "BLEU", _bootstrapped(split[0], split[1], {"BLEU": bleu}))


def _bootstrapped(
    hypotheses: Sequence[str], references: Sequence[str], metrics: dict[str, Metric]
) -> dict[str, list[str | Result]]:
    """One system's scores with their intervals."""
    return PairedTest([("system", hypotheses)], metrics, [references], "bs", RESAMPLES)()[1]


def _score(metric: BLEU | CHRF, name: str, results: Mapping[str, Sequence[str | Result]]) -> Score:
    """The only system's score by a metric, which sacreBLEU calls ``name``."""
    result = results[name][0]
    assert isinstance(result, Result)  # noqa: S101 - str is the system's name, under another key
    return Score(
        round(result.score, 4), round(float(result.ci or 0), 4), str(metric.get_signature())
    )


def compare(
    hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str]
) -> Comparison:
    """PRR and p-value of a system against a baseline on the same sentences.

    The p-value is sacreBLEU's paired bootstrap (its seed: $SACREBLEU_SEED or 12345), and so are
    PRR's resamples.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    check_counts(hypotheses, references)
    check_counts(baseline, references)
    test = PairedTest(
        [("baseline", baseline), ("system", hypotheses)],
        {"BLEU": BLEU()},
        [references],
        "bs",
        RESAMPLES,
    )
    baseline_result, result = (r for r in test()[1]["BLEU"] if isinstance(r, Result))
    prr = _ratio(result.score, baseline_result.score)
    low, high = _prr_interval(hypotheses, baseline, references) if prr is not None else (None, None)
    # sacreBLEU counts resamples whose difference is above the real one, so that equal systems would
    # get the least p.
    p_value = 1.0 if result.score == baseline_result.score else float(result.p_value or 0)
    return Comparison(prr, low, high, p_value)


def compare_seeds(
    systems: Sequence[Sequence[str]], baselines: Sequence[Sequence[str]], references: Sequence[str]
) -> Comparison:
    """PRR and p-value of mean BLEU over several trainings (seeds) of a system and of a baseline.

    With one training each this is ``compare``. With several, a resample draws sentences, the same
    for all, and of each system's n seeds n - 1 with replacement (which gives a mean over few seeds
    its unbiased variance: Rao and Wu 1988); the rule that makes a p-value of the resampled
    differences is sacreBLEU's. So both the sentences and the seeds that happened to be chosen count
    as chance.

    Args:
        systems: the hypotheses of each training of the system.
        baselines: those of the baseline; there may be another number of them.
        references: of every one of them.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    if len(systems) == len(baselines) == 1:
        return compare(systems[0], baselines[0], references)
    for hypotheses in (*systems, *baselines):
        check_counts(hypotheses, references)
    random = _random()
    chosen = _resamples(len(references), random)
    means, resampled = [], []
    for runs in (systems, baselines):
        counts = [_bleu_counts(hypotheses, references) for hypotheses in runs]
        means.append(float(np.mean([_bleu(of_run.sum(axis=0)) for of_run in counts])))
        scores = np.array(
            [[_bleu(row) for row in chosen @ of_run] for of_run in counts]
        )  # (seeds, RESAMPLES)
        drawn = random.integers(len(runs), size=(max(1, len(runs) - 1), RESAMPLES))
        resampled.append(np.take_along_axis(scores, drawn, axis=0).mean(axis=0))
    system, baseline = means
    difference = abs(system - baseline)
    spread = np.abs(resampled[0] - resampled[1])
    p_value = (
        float((np.sum(spread - spread.mean() > difference) + 1) / (RESAMPLES + 1))
        if difference
        else 1.0
    )
    ratios = [_ratio(s, b) for s, b in zip(*resampled, strict=True)]
    return Comparison(_ratio(system, baseline), *_middle(ratios), p_value)


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
    chosen = _resamples(len(references), _random())
    system, base = (
        chosen @ _bleu_counts(h, references) for h in (hypotheses, baseline)
    )  # (RESAMPLES, 10)
    return _middle([_ratio(_bleu(s), _bleu(b)) for s, b in zip(system, base, strict=True)])


def _random() -> np.random.Generator:
    """Seeded as sacreBLEU seeds its own."""
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    return np.random.default_rng(None if seed.lower() == "none" else int(seed))


def _resamples(sentences: int, random: np.random.Generator) -> NDArray[np.int64]:
    """(RESAMPLES, sentences): how often each sentence is drawn."""
    return random.multinomial(sentences, np.full(sentences, 1 / sentences), size=RESAMPLES)


def _middle(ratios: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The ends of the middle 95% of those that are known."""
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
    return float(
        BLEU.compute_bleu(rest[:4], rest[4:], system, reference, smooth_method="exp").score
    )


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
            raise UserError(
                f"{path}, line {number}, is not valid UTF-8: convert the file to UTF-8"
            ) from None
    return decoded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe score``."""
    for name in ("reference", "hypothesis"):
        parser.add_argument(
            f"--{name}",
            type=Path,
            required=True,
            metavar="F",
            help=f"{name}s, detokenised, one a line",
        )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="F",
        help="another system's, to compare with: PRR and p-value",
    )
    parser.add_argument(
        "--language",
        metavar="L",
        help="of the text (de, say): print the older literature's tokenised BLEU too",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print BLEU, chrF and, with a baseline, the comparison."""
    hypotheses, references = read_lines(args.hypothesis), read_lines(args.reference)
    scores = score(hypotheses, references, args.language)
    comparison = (
        compare(hypotheses, read_lines(args.baseline), references) if args.baseline else None
    )
    if args.json:
        print(
            json.dumps(
                {**asdict(scores), "comparison": comparison and asdict(comparison)}, indent=2
            )
        )
        return
    print("\n".join(described(scores)))
    if comparison:
        print(describe(comparison))


def read_scores(path: Path) -> Scores:
    """What ``asdict(scores)`` was written to.

    Raises:
        UserError: the file cannot be read.
    """
    values = read_json(path)
    tokenised = values.get("tokenised")
    return Scores(
        Score(**values["bleu"]),
        Score(**values["chrf"]),
        values["sentences"],
        Score(**tokenised) if tokenised else None,
    )


def described(scores: Scores) -> list[str]:
    """A line for each score, with what it means."""
    named = [("BLEU", scores.bleu), ("chrF", scores.chrf)]
    lines = [
        f"{name} {value.score:.2f} ± {value.confidence:.2f}  ({value.signature}, {scores.sentences} sentences)"
        for name, value in named
    ]
    if scores.tokenised:
        old = scores.tokenised
        lines.append(
            f"tokenised, compounds split, as in older papers: {old.score:.2f} ± {old.confidence:.2f}  ({old.signature})"
        )
    return lines


def describe(comparison: Comparison) -> str:
    """A comparison in one line."""
    test = f"p = {comparison.p_value:.4f} (paired bootstrap, {RESAMPLES} resamples)"
    if comparison.prr is None:
        return f"PRR undefined: the baseline's BLEU is 0; {test}"
    return f"PRR {comparison.prr:.1f} [{comparison.prr_low:.1f}, {comparison.prr_high:.1f}]; {test}"
