"""Runs a study: ``bash scripts/study.sh STUDY``, or ``python -m studies STUDY`` in scripts/."""

import sys
from collections.abc import Sequence

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.common.quiet import quieten_start_up
from studies import (
    budget,
    collaborative_curve,
    collaborative_nlu,
    gap,
    precision,
    serving,
    study,
    uptraining,
)
from studies.report import PROGRAM

#: Studies of variants of a row: name -> module, and the module's own options.
_OF_VARIANTS = {
    "gap-study": (gap.STUDY, []),
    "equal-budget": (budget.STUDY, [budget.add_arguments]),
    "precision-study": (precision.STUDY, []),
    "uptrain": (uptraining.STUDY, [uptraining.add_arguments]),
    "collaborative-curve": (collaborative_curve.STUDY, [collaborative_curve.add_arguments]),
}
#: The others.
_OTHERS = {"collaborative-nlu": collaborative_nlu, "serving": serving}
STUDIES = (*_OF_VARIANTS, *_OTHERS)


def build_parser() -> Parser:
    """The command line: a subcommand for each study."""
    parser = Parser(prog=PROGRAM, description=__doc__)
    parsers = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
    parsers.type = str  # its words are converted by the study
    for name, (asked, own) in _OF_VARIANTS.items():
        added = parsers.add_parser(name, help=asked.title, description=asked.title)
        for add_arguments in (*own, study.add_arguments):
            add_arguments(added)
        added.set_defaults(run=asked.run)
    for name, module in _OTHERS.items():
        title = str(module.__doc__).splitlines()[0]
        added = parsers.add_parser(name, help=title, description=module.__doc__)
        module.add_arguments(added)
        added.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study; it ends as the subcommands of ``fairseq-mhe`` do."""
    quieten_start_up()
    argv = list(sys.argv[1:] if argv is None else argv)

    def command() -> None:
        args = build_parser().parse_args(argv)
        args.typed = argv
        args.run(args)

    return exit_status(" ".join([PROGRAM, *argv[:1]]), command)


if __name__ == "__main__":
    sys.exit(main())
