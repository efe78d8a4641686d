"""``fairseq-mhe nlu-table``: kinds of attention pre-trained, fine-tuned on tasks, in a table."""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.arguments import positive, some_of
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder, write_text
from fairseq_mhe.common.tables import align
from fairseq_mhe.embeddings import EMBEDDINGS, TABLE
from fairseq_mhe.experiments import cells
from fairseq_mhe.experiments.finetune import fine_tune
from fairseq_mhe.experiments.pretrain import Tokens, add_pretraining, pretrain, recipe_of
from fairseq_mhe.models.counting import attention_parameters, embedding_parameters, total_parameters
from fairseq_mhe.models.families import ROBERTA, build_language_on_meta
from fairseq_mhe.prepare.data_folder import TextFolder, open_text
from fairseq_mhe.prepare.task_folder import TaskFolder, open_task
from fairseq_mhe.report.published import peop, prr
from fairseq_mhe.runs import devices
from fairseq_mhe.runs.language_recipes import Pretraining

FILE = "nlu-table.md"
#: The paper's, in its order.
_KINDS = ("sha", "mha", "el", "mqa", "skv", "mhe_add", "mhe_mul")
#: Task -> scores of the seeds.
Scores = Mapping[str, Sequence[float]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe nlu-table``."""
    add = parser.add_argument
    archs = [ROBERTA.arch(row) for row in ROBERTA.rows]
    add("arch", metavar="ARCH", choices=archs, help=", ".join(archs))
    told = "folders of data-prep/glue.sh, superglue.sh or squad.sh, one a task"
    add("--tasks", type=Path, nargs="+", required=True, metavar="TASK-DATA", help=told)
    told = f"kinds of attention (default: {','.join(_KINDS)})"
    add("--kinds", type=cells.words, default=list(_KINDS), metavar="KIND,...", help=told)
    seeds = ("1", "2", "3", "4", "5")
    told = "seeds of fine-tuning (default: 1,2,3)"
    add("--seeds", type=some_of(seeds), default=["1", "2", "3"], metavar="N,...", help=told)
    add("--epochs", type=positive, metavar="N", help="of fine-tuning, not the recipe's")
    told = f"token embeddings, each with each kind: {', '.join(EMBEDDINGS)} (default: {TABLE})"
    add("--embeddings", type=some_of(EMBEDDINGS), default=[TABLE], metavar="KIND,...", help=told)
    add_pretraining(parser)
    devices.add_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Train what is not trained yet, one model after another, and write and print the table."""
    kinds = [cells.kind(name) for name in args.kinds]
    data = open_text(args.data)
    tasks = [open_task(folder) for folder in args.tasks]
    names = [task.task.name for task in tasks]
    if len(set(names)) < len(names):
        raise UserError(f"--tasks names a task twice: {', '.join(names)}")
    for task in tasks:
        if task.text != data.fingerprint:
            raise UserError(
                f"{task.folder} is not in the subwords of {data.folder}: prepare it with --text "
                f"{data.folder}"
            )
    seeds = [int(word) for word in args.seeds]
    models = [
        (kind, Tokens(name, None if name == TABLE else args.hash, args.objective))
        for name in args.embeddings
        for kind in kinds
    ]
    print(train_all(args.arch, models, data, tasks, seeds, recipe_of(args), args))


def train_all(
    arch: str,
    models: Sequence[tuple[str, Tokens]],
    data: TextFolder,
    tasks: Sequence[TaskFolder],
    seeds: Sequence[int],
    recipe: Pretraining,
    args: argparse.Namespace,
) -> Path:
    """Train what is not trained yet, write the table after each model, print it; the table's file.

    ``models``: kinds of attention and token embeddings; ``args``: the folder ``out``, ``epochs``
    where they are not the recipe's, and the options of `devices`.

    Raises:
        UserError: a model cannot be, a training failed, or its folder has a run of other settings.
    """
    out = output_folder(args.out)
    words = sum(1 for _ in data.dictionary().open(encoding="utf-8")) + 5
    attention: dict[str, int] = {}
    embeddings: dict[str, tuple[int, int]] = {}
    for kind, tokens in models:
        model = build_language_on_meta(arch, kind, words, **tokens.options(arch, kind, data))
        name = _name(kind, tokens)
        attention[name] = attention_parameters(model)
        embeddings[name] = embedding_parameters(model), total_parameters(model)
    if all(tokens.embedding == TABLE for _, tokens in models):
        embeddings = {}
    found: dict[str, Scores] = {}
    for kind, tokens in models:
        run = pretrain(arch, kind, tokens, 1, data, out, recipe, args)
        scores: dict[str, list[float]] = {}
        for task in tasks:
            for number in seeds:
                _, result = fine_tune(run.folder, task, number, out, args.epochs, args)
                scores.setdefault(task.task.name, []).append(result["scores"]["score"])
        found[_name(kind, tokens)] = scores
        write_text(out / FILE, f"{table(found, attention, embeddings)}\n")  # as far as it is
    print(table(found, attention, embeddings))
    return out / FILE


def _name(kind: str, tokens: Tokens) -> str:
    """Of a model in the table."""
    return kind if tokens.embedding == TABLE else f"{kind}, {tokens.embedding}"


def table(
    found: Mapping[str, Scores],
    parameters: Mapping[str, int],
    embeddings: Mapping[str, tuple[int, int]] | None = None,
) -> str:
    """A line a model: attention parameters, the score of each task, their mean, PRR and PEoP.

    A task's score is the mean over seeds, with the standard deviation where there are several. PRR
    is of mha's mean, PEoP of sha's mean and parameters, as the paper has them; a dash stands where
    these were not trained. Where ``embeddings`` says the parameters of each model's token embedding
    and all of the model's, these and the weights' size stand there too, and PEoP, which is of
    attention parameters, only with a table of words.
    """
    means = {
        name: statistics.mean(statistics.mean(values) for values in scores.values())
        for name, scores in found.items()
    }
    tasks = list(next(iter(found.values())))
    sizes = ("embedding parameters", "all parameters", "MB in float32") if embeddings else ()
    rows = []
    for name, scores in found.items():
        line = [name, f"{parameters[name]:,}"]
        if embeddings:
            own, whole = embeddings[name]
            line += [f"{own:,}", f"{whole:,}", f"{whole * 4 / 1e6:.1f}"]
        line += [*(_with_deviation(scores[task]) for task in tasks), f"{means[name]:.2f}"]
        line.append(f"{prr(means[name], means['mha']):.1f}" if means.get("mha") else "-")
        elastic = "-"
        if means.get("sha") and name in KINDS and parameters[name] != parameters["sha"]:
            value = peop(means[name], means["sha"], parameters[name], parameters["sha"])
            elastic = f"{value:.2f}"
        rows.append([*line, elastic])
    headings = ("attention", "attention parameters", *sizes, *tasks, "mean", "PRR", "PEoP")
    return align(headings, rows, "markdown")


def _with_deviation(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean
