"""``fairseq-mhe score``: scores of a text, and with a baseline what the difference means."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from fairseq_mhe.report.significance import compare
from fairseq_mhe.runs.scoring import (
    add_tokeniser,
    bleu_tokeniser,
    described,
    read_aligned,
    score,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe score``."""
    add = parser.add_argument
    for name in ("reference", "hypothesis"):
        help_ = f"{name}s, detokenised, one a line"
        add(f"--{name}", type=Path, required=True, metavar="F", help=help_)
    help_ = "another system's, to compare with: PRR and p-value"
    add("--baseline", type=Path, metavar="F", help=help_)
    help_ = (
        "of the text (de, say): BLEU's tokeniser, and the older literature's tokenised BLEU too"
    )
    add("--language", metavar="L", help=help_)
    add_tokeniser(parser)
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> None:
    """Print BLEU, chrF and, with a baseline, the comparison."""
    paths = [args.reference, args.hypothesis, *([args.baseline] if args.baseline else [])]
    advice = "score the same sentences in the same order, one a line"
    references, hypotheses, *baseline = read_aligned(paths, advice)
    tokenise = bleu_tokeniser(args.language, args.bleu_tokenizer)
    scores = score(hypotheses, references, args.language, tokenise)
    comparison = None
    if baseline:
        comparison = compare([hypotheses], baseline, references, tokenise)
    if args.json:
        print(json.dumps({**scores, "comparison": comparison and asdict(comparison)}, indent=2))
        return
    print("\n".join(described(scores)))
    if comparison:
        print(comparison.describe())
