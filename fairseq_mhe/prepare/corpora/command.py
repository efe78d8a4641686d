"""``fairseq-mhe corpus NAME``: prepare a known corpus, your own running text, or a task."""

from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.corpora.iwslt14 import Iwslt14
from fairseq_mhe.prepare.corpora.language import OwnText, PennTreebank, WikiText103
from fairseq_mhe.prepare.corpora.multi30k import Multi30k, Multi30kBpe
from fairseq_mhe.prepare.corpora.official_task import OfficialTask
from fairseq_mhe.prepare.corpora.wmt14 import Wmt14
from fairseq_mhe.prepare.tasks import TASKS

#: Name of a corpus, and of its script in data-prep/ -> its options; their method `prepare` makes
#: the data folder. Of a suite of tasks it takes the task.
CORPORA: dict[str, type[Any]] = {
    "home_assistant_en_de": HomeAssistant,
    "iwslt14_de_en": Iwslt14,
    "multi30k_bpe_en_de": Multi30kBpe,
    "multi30k_en_de": Multi30k,
    "wmt14_en_de": Wmt14,
    "ptb": PennTreebank,
    "text": OwnText,
    "wikitext103": WikiText103,
    "glue": OfficialTask,
    "squad": OfficialTask,
    "superglue": OfficialTask,
}
#: Name of a suite of tasks -> its name in print.
SUITES = {"glue": "GLUE", "squad": "SQuAD", "superglue": "SuperGLUE"}


def add_arguments(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(
        title="corpora", metavar="NAME", dest="name", required=True
    )
    for name, options in CORPORA.items():
        help_ = options.__doc__ or ""
        if name in SUITES:
            suite = SUITES[name]
            help_ = f"Prepare a task of {suite}, in the subwords of a language model."
        command = commands.add_parser(name, help=help_, description=help_)
        add_options(command, options)
        if name in SUITES:
            tasks = [task.name for task in TASKS.values() if task.suite == name]
            command.add_argument(
                "task", choices=tasks, metavar="TASK", help=", ".join(tasks)
            )
            command.set_defaults(block=384 if name == "squad" else 512)


def run(args: Namespace) -> None:
    """Prepare the corpus or task that the command line names, and print its folder."""
    corpus = from_options(CORPORA[args.name], args)
    task = [TASKS[args.task]] if "task" in args else []
    print(corpus.prepare(*task))
