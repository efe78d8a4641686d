"""Runs a study: ``bash scripts/study.sh STUDY``, or ``python -m studies STUDY`` in scripts/."""

import sys
from collections.abc import Sequence
from typing import Any

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.common.quiet import quieten_start_up
from studies import collaborative_nlu, serving
from studies.budget import BUDGET
from studies.collaborative_curve import CURVE
from studies.gap import GAP
from studies.precision import PRECISION
from studies.report import PROGRAM
from studies.uptraining import UPTRAINING

#: Name -> a study of variants of a row, or a module that is one of its own.
STUDIES: dict[str, Any] = {
    "gap-study": GAP,
    "equal-budget": BUDGET,
    "precision-study": PRECISION,
    "uptrain": UPTRAINING,
    "collaborative-curve": CURVE,
    "collaborative-nlu": collaborative_nlu,
    "serving": serving,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study; it ends as the subcommands of ``fairseq-mhe`` do."""
    quieten_start_up()
    argv = list(sys.argv[1:] if argv is None else argv)

    def command() -> None:
        parser = Parser(prog=PROGRAM, description=__doc__)
        parsers = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
        parsers.type = str  # its words are converted by the study
        for name, study in STUDIES.items():
            own = parsers.add_parser(name, help=study.title, description=study.title)
            study.add_arguments(own)
            own.set_defaults(run=study.run)
        args = parser.parse_args(argv)
        args.typed = argv
        args.run(args)

    return exit_status(" ".join([PROGRAM, *argv[:1]]), command)


if __name__ == "__main__":
    sys.exit(main())
