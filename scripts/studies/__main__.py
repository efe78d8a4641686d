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
    uptraining,
)
from studies.study import PROGRAM

#: Name -> module, and what it finds out.
STUDIES = {
    "collaborative-curve": (
        collaborative_curve,
        "BLEU against the width of collaborative attention, from a trained MHA and from scratch",
    ),
    "collaborative-nlu": (
        collaborative_nlu,
        "scores of fine-tuned language models against the width of collaborative attention",
    ),
    "uptrain": (uptraining, "smaller kinds of attention from a trained MHA or from scratch"),
    "gap-study": (
        gap,
        "what moves MHE's BLEU towards MHA's: initialisation, embeddings, rate, place, heads",
    ),
    "equal-budget": (
        budget,
        "every kind of attention at the same number of parameters: loss and BLEU against cache",
    ),
    "precision-study": (precision, "training in bf16 against float32: loss, BLEU, noise of seeds"),
    "serving": (serving, "each engine of translate with a run's model, and with a larger row"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one study; it ends as the subcommands of ``fairseq-mhe`` do."""
    quieten_start_up()
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = Parser(prog=PROGRAM, description=__doc__)
    parsers = parser.add_subparsers(dest="study", required=True, metavar="STUDY")
    parsers.type = str  # its words are converted by the study
    for name, (module, told) in STUDIES.items():
        module.add_arguments(parsers.add_parser(name, help=told, description=told))

    def command() -> int | None:
        args = parser.parse_args(argv)
        args.typed = argv
        return STUDIES[args.study][0].run(args)

    return exit_status(" ".join([PROGRAM, *argv[:1]]), command)


if __name__ == "__main__":
    sys.exit(main())
