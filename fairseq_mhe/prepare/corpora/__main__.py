"""What the scripts of data-prep/ run: a corpus, or a task of understanding, as a data folder."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from fairseq_mhe.common.arguments import Parser
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.prepare.config import add_options, from_options
from fairseq_mhe.prepare.corpora import understanding
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.corpora.iwslt14 import Iwslt14
from fairseq_mhe.prepare.corpora.language import OwnText, PennTreebank, WikiText103
from fairseq_mhe.prepare.corpora.multi30k import Multi30k, Multi30kBpe
from fairseq_mhe.prepare.corpora.wmt14 import Wmt14

#: Name -> its options, whose method `prepare` makes the data folder.
CORPORA = {
    "home_assistant_en_de": HomeAssistant,
    "iwslt14_de_en": Iwslt14,
    "multi30k_bpe_en_de": Multi30kBpe,
    "multi30k_en_de": Multi30k,
    "ptb": PennTreebank,
    "text": OwnText,
    "wikitext103": WikiText103,
    "wmt14_en_de": Wmt14,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of a corpus, whose messages begin with the name of its script."""
    parser = Parser(prog="python -m fairseq_mhe.prepare.corpora", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for name in (*CORPORA, "glue", "superglue", "squad"):
        options: Any = CORPORA.get(name, understanding)
        command = commands.add_parser(name, prog=f"{name}.sh", description=options.__doc__)
        if options is understanding:
            understanding.add_arguments(command, name)
        else:
            add_options(command, options)
    args = parser.parse_args(argv)
    return exit_status(f"{args.name}.sh", partial(_run, args))


def _run(args: argparse.Namespace) -> None:
    options: Any = CORPORA.get(args.name)
    print(from_options(options, args).prepare() if options else understanding.run(args))


if __name__ == "__main__":
    sys.exit(main())
