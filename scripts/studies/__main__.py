"""Run a study: bash scripts/study.sh STUDY, or in scripts/ python -m studies STUDY."""

import sys
from collections.abc import Sequence
from functools import partial

from fairseq_mhe import fix_fairseq
from fairseq_mhe.cli import run_subcommand
from fairseq_mhe.common.arguments import Parser
from studies import collaborative_nlu, serving, study
from studies.report import PROGRAM
from studies.variants import STUDIES

#: Studies that do not compare variants of a row.
OTHERS = {"collaborative-nlu": collaborative_nlu, "serving": serving}


def build_parser(chosen: str) -> Parser:
    """Return the parser of all studies, whichever is ``chosen``."""
    fix_fairseq()
    parser = Parser(prog=PROGRAM, description=__doc__)
    studies = parser.add_subparsers(required=True, metavar="STUDY")
    for name, of_variants in STUDIES.items():
        title = of_variants.title
        subparser = studies.add_parser(name, help=title, description=title)
        study.add_arguments(of_variants, subparser)
        subparser.set_defaults(function=partial(study.run, of_variants))
    for name, module in OTHERS.items():
        subparser = studies.add_parser(name, help=module.TITLE, description=module.TITLE)
        module.add_arguments(subparser)
        subparser.set_defaults(function=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study, and return its exit status."""
    return run_subcommand(PROGRAM, build_parser, argv)


if __name__ == "__main__":
    sys.exit(main())
