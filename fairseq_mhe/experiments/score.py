"""``fairseq-mhe score``: score translations in text files."""

import json
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.languages import is_known
from fairseq_mhe.report.significance import compare
from fairseq_mhe.runs import scoring


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    help_ = "reference translations, detokenised, one a line"
    add("--reference", type=Path, required=True, metavar="F", help=help_)
    help_ = "translations of the system, detokenised, one a line"
    add("--hypothesis", type=Path, required=True, metavar="F", help=help_)
    help_ = "translations of another system: adds PRR and p-value"
    add("--baseline", type=Path, metavar="F", help=help_)
    help_ = "target language, like de: chooses BLEU's tokeniser, adds tokenised BLEU"
    add("--language", metavar="L", help=help_)
    add("--bleu-tokenizer", choices=scoring.TOKENISERS, help=scoring.TOKENISER_HELP)
    add("--json", action="store_true", help="print JSON, for programs")


def run(args: Namespace) -> None:
    """Print BLEU, chrF and, with --baseline, PRR and p-value."""
    paths = [args.reference, args.hypothesis]
    if args.baseline:
        paths.append(args.baseline)
    references, hypotheses, *baseline = scoring.read_aligned(paths)
    if args.language and not is_known(args.language):
        raise UserError(f"--language {args.language}: unknown; give a code like de or zh")
    tokenise = scoring.bleu_tokeniser(args.language, args.bleu_tokenizer)
    scores = scoring.score(hypotheses, references, args.language, tokenise)
    comparison = None
    if baseline:
        comparison = compare([hypotheses], baseline, references, tokenise)
    if args.json:
        scores["comparison"] = comparison and asdict(comparison)
        print(json.dumps(scores, indent=2))
        return
    print("\n".join(scoring.described(scores)))
    if comparison:
        print(comparison.describe())
