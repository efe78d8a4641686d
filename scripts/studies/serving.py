"""``serving``: translate a test set with each engine and precision of ``fairseq-mhe translate``."""

import shlex
import statistics
import sys
import time
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fairseq_mhe.cli import run_subcommand
from fairseq_mhe.common.arguments import Parser, positive
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import output_folder
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.common.system import cores, omp_threads
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.trained import open_trained
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.experiments.run_study import write_report
from fairseq_mhe.models.packed import bf16_available
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.table import Block, Table, column
from fairseq_mhe.runs.scoring import score

TITLE = "Speed and memory of the engines of translate"


def build_parser(_: str) -> Parser:
    """Return the parser of this study."""
    parser = Parser(prog="serving", description=TITLE)
    add = parser.add_argument
    add("--run", dest="model", type=Path, required=True, metavar="RUN", help="a finished run")
    add("--data", type=Path, metavar="DATA", help="data folder of the run, if moved")
    add("--repetitions", type=positive, default=3, metavar="N", help="rounds (default: 3)")
    add("--threads", type=positive, default=omp_threads(cores()), help="(default: %(default)s)")
    add("--out", type=Path, default="runs/serving", help="output folder (default: %(default)s)")
    parser.set_defaults(function=run)
    return parser


def run(args: Namespace) -> None:
    """Export the run's model for both engines, and measure each in every precision it has."""
    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    translators = []
    translations: dict[str, list[str]] = {}
    precisions = ["float32", "bf16", "int8"] if bf16_available() else ["float32", "int8"]
    ways = [("fairseq", precision) for precision in precisions]
    left_out: list[str] = []
    with quiet_fairseq(), TemporaryDirectory(dir=output_folder(args.out)) as bundles:
        trained = open_trained(args.model, args.data)
        lines, references = (list(read_lines(trained.data.text("test", i))) for i in (0, 1))
        export(trained, "fairseq", Path(bundles, "fairseq"))
        try:
            export(trained, "ctranslate2", Path(bundles, "ctranslate2"))
            ways += [("ctranslate2", "float32"), ("ctranslate2", "int8")]
        except UserError as error:  # it is not installed, or cannot hold this kind of attention
            left_out = [f"ctranslate2 is left out: {error}."]
        for engine, precision in ways:
            folder = Path(bundles, engine)
            options: dict[str, Any] = {"precision": precision, "threads": args.threads}
            start = time.perf_counter()
            translators.append(Translator.load(folder, engine=engine, cpu=True, **options))
            seconds = time.perf_counter() - start
            size = sum(path.stat().st_size for path in folder.glob("model.*"))
            name = engine if precision == "float32" else f"{engine}, {precision}"
            rows.append({"variant": name, "load_seconds": seconds, "bytes": size, "rates": []})
        for _ in range(args.repetitions):
            for row, translator in zip(rows, translators, strict=True):
                start = time.perf_counter()
                translations[row["variant"]] = translator.translate(lines)
                row["rates"].append(len(lines) / (time.perf_counter() - start))
    language = trained.data.languages[1]
    for row, translated in zip(rows, translations.values(), strict=True):
        row["rate"] = statistics.median(row["rates"])
        row["ratio"] = row["rate"] / rows[0]["rate"]
        row["bleu"] = score(translated, references, language)["bleu"]["score"]
        row["equal"] = sum(map(str.__eq__, translated, translations["fairseq"]))
    note = f"All lines of test; threads {args.threads}; median of {args.repetitions} "
    note += "rounds, in each of which all engines take a turn. Weights: int8 is rounded at loading."
    note += f" Equal lines: of {len(lines):,}, those with fairseq's translation in float32."
    columns = [
        column("variant", "variant"),
        column("lines/s", "rate", ",.1f"),
        column("vs fairseq", "ratio", ".2f"),
        column("BLEU", "bleu", ".2f"),
        column("equal lines", "equal", ","),
        column("seconds to load", "load_seconds", ".1f"),
        column("weights, MiB", "mebibytes", ",.2f"),
    ]
    block = Block(columns, [{**row, "mebibytes": row["bytes"] / 2**20} for row in rows])
    table = Table(f"Serving: {args.model.resolve().name}", [block], [note, *left_out])
    command = f"bash scripts/study.sh serving {shlex.join(args.typed)}"
    results = {"threads": args.threads, "rows": rows}
    write_report(table, args.out / "serving.md", results, command, gpu=False)


if __name__ == "__main__":
    sys.exit(run_subcommand("study.sh serving", build_parser, None))
