"""``fairseq-mhe score``: scores of a text, and with a baseline what the difference means."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from fairseq_mhe.report.significance import compare
from fairseq_mhe.runs.scoring import described, read_lines, score


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
        found = {**asdict(scores), "comparison": comparison and asdict(comparison)}
        print(json.dumps(found, indent=2))
        return
    print("\n".join(described(scores)))
    if comparison:
        print(comparison.describe())
