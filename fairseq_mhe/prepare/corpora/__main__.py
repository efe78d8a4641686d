"""The command line of the scripts in data-prep/: prepare a known corpus or a GLUE-like task."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import (
    Parser,
    add_options,
    from_options,
    integer,
    option,
)
from fairseq_mhe.common.errors import exit_status
from fairseq_mhe.prepare.corpora.home_assistant import HomeAssistant
from fairseq_mhe.prepare.corpora.iwslt14 import Iwslt14
from fairseq_mhe.prepare.corpora.known import Downloads
from fairseq_mhe.prepare.corpora.language import OwnText, PennTreebank, WikiText103
from fairseq_mhe.prepare.corpora.multi30k import Multi30k, Multi30kBpe
from fairseq_mhe.prepare.corpora.wmt14 import Wmt14
from fairseq_mhe.prepare.download import extract
from fairseq_mhe.prepare.task_folder import prepare_task
from fairseq_mhe.prepare.tasks import TASKS, Task
from fairseq_mhe.prepare.text import read_lines, write_lines


@dataclass(frozen=True)
class OfficialTask(Downloads):
    """Prepare a task of GLUE, SuperGLUE or SQuAD, in the subwords of a language model."""

    folder: Path | None = option(
        None,
        "folder of the unpacked official files, of this task or of all, to skip the download",
        type=Path,
    )
    text: Path = option(
        None, "the language model's data folder", type=Path, required=True, metavar="DATA"
    )
    out: Path = option(
        None, "new task folder (default: runs/TASK-data)", type=Path, metavar="DIR"
    )
    block: int = integer(512, "tokens of an example, at most the model's positions", 8)

    def prepare(self, task: Task) -> Path:
        out = self.out or Path(f"runs/{task.name}-data")
        folder = self.folder or replace(self, out=out).obtain(task)
        return prepare_task(task, folder, self.text, out, self.block)

    def obtain(self, task: Task) -> Path:
        """Download a task's official files, return their folder; raises UserError as `unpack`."""

        def unpack(paths: list[Path], work: Path) -> None:
            if task.name == "mrpc":
                # The second file lists the pairs of identifiers of GLUE's dev set.
                header, *rows = read_lines(paths[0])
                dev_pairs = list(read_lines(paths[1]))
                dev = []
                for row in rows:
                    _, first, second, *_ = row.split("\t")
                    if f"{first}\t{second}" in dev_pairs:
                        dev.append(row)
                train = [row for row in rows if row not in dev]
                write_lines(work / "train.tsv", [header, *train])
                write_lines(work / "dev.tsv", [header, *dev])
            elif task.suite == "squad":
                for path in paths:
                    shutil.copy(path, work)
            else:
                splits = ("train", *task.scored)
                names = [f"{task.folder}/{split}{task.suffix}" for split in splits]
                extract(paths[0], names, work)

        self.unpack(task.files, unpack)
        return self.original


#: Name of a script -> the options of its corpus; their method `prepare` makes the data folder.
CORPORA = {
    "home_assistant_en_de": HomeAssistant,
    "iwslt14_de_en": Iwslt14,
    "multi30k_bpe_en_de": Multi30kBpe,
    "multi30k_en_de": Multi30k,
    "ptb": PennTreebank,
    "text": OwnText,
    "wikitext103": WikiText103,
    "wmt14_en_de": Wmt14,
    **dict.fromkeys(("glue", "superglue", "squad"), OfficialTask),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command of a corpus and return the exit status; messages begin with NAME.sh."""
    arguments = sys.argv[1:] if argv is None else argv
    return exit_status(f"{' '.join(arguments[:1])}.sh", partial(_run, arguments))


def _run(arguments: Sequence[str]) -> None:
    """Prepare the corpus or task that the command line names, and print its folder."""
    parser = Parser(prog="python -m fairseq_mhe.prepare.corpora", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for name, options in CORPORA.items():
        command = commands.add_parser(
            name, prog=f"{name}.sh", description=options.__doc__
        )
        add_options(command, options)
        if options is OfficialTask:
            names = [task.name for task in TASKS.values() if task.suite == name]
            help_ = ", ".join(names)
            command.add_argument("task", choices=names, metavar="TASK", help=help_)
            command.set_defaults(block=384 if name == "squad" else 512)
    args = parser.parse_args(arguments)
    corpus: Any = from_options(CORPORA[args.name], args)
    tasks = [TASKS[args.task]] if "task" in args else []
    print(corpus.prepare(*tasks))


if __name__ == "__main__":
    sys.exit(main())
