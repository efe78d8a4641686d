"""Run a study: bash scripts/study.sh STUDY, or in scripts/ python -m studies STUDY."""

import sys
from collections.abc import Sequence
from functools import partial

from fairseq_mhe.cli import load_user_dir, without_user_dir
from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.common.quiet import quieten_start_up
from studies import collaborative_nlu, serving, study
from studies.report import PROGRAM
from studies.variants import STUDIES

#: Studies that do not compare variants of a row.
OTHERS = {"collaborative-nlu": collaborative_nlu, "serving": serving}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study, and return an exit status as the subcommands of ``fairseq-mhe`` do."""
    quieten_start_up()
    argv = list(sys.argv[1:] if argv is None else argv)

    def command() -> None:
        parser = Parser(prog=PROGRAM, description=__doc__)
        subparsers = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
        for name, chosen in STUDIES.items():
            subparser = subparsers.add_parser(name, help=chosen.title, description=chosen.title)
            study.add_arguments(chosen, subparser)
            subparser.set_defaults(run=partial(study.run, chosen))
        for name, module in OTHERS.items():
            subparser = subparsers.add_parser(name, help=module.TITLE, description=module.TITLE)
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
        args = parser.parse_args(without_user_dir(argv))
        load_user_dir()
        args.typed = argv  # the report shows the command
        args.run(args)

    return exit_status(" ".join([PROGRAM, *argv[:1]]), command)


if __name__ == "__main__":
    sys.exit(main())
