"""``serving``: translate a test set with each engine and precision of ``fairseq-mhe translate``."""

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairseq_mhe.cli import run_script
from fairseq_mhe.common.arguments import integer, option
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
from fairseq_mhe.report import columns
from fairseq_mhe.report.table import Block, Table
from fairseq_mhe.runs.scoring import score

NOTE = (
    "All lines of test; threads {threads}; median of {repetitions} rounds, in each of which all "
    "engines take a turn. Weights: int8 is rounded at loading. Equal lines: of {lines:,}, those "
    "with fairseq's translation in float32."
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure speed and memory of the engines of translate."""

    run: Path = option(None, "a finished run", type=Path, required=True)
    data: Path | None = option(None, "data folder, if the run's has moved", type=Path)
    repetitions: int = integer(3, "rounds")
    threads: int = integer(omp_threads(cores()), "threads of each engine")
    out: Path = option(Path("runs/serving"), "output folder", type=Path)


def run(options: Options, command: str) -> None:
    """Export the run's model for both engines, and measure each in every precision it has."""
    precisions = ["float32", "bf16", "int8"] if bf16_available() else ["float32", "int8"]
    ways = [("fairseq", precision) for precision in precisions]
    notes = []
    with quiet_fairseq(), TemporaryDirectory(dir=output_folder(options.out)) as bundles:
        trained = open_trained(options.run, options.data)
        lines, references = (list(read_lines(trained.data.text("test", side))) for side in (0, 1))
        export(trained, "fairseq", Path(bundles, "fairseq"))
        try:
            export(trained, "ctranslate2", Path(bundles, "ctranslate2"))
            ways += [("ctranslate2", "float32"), ("ctranslate2", "int8")]
        except UserError as error:  # it is not installed, or cannot hold this kind of attention
            notes.append(f"ctranslate2 is left out: {error}.")
        loaded = [load(Path(bundles, engine), precision, options) for engine, precision in ways]
        for _ in range(options.repetitions):
            for row, translator in loaded:
                start = time.perf_counter()
                row["translations"] = translator.translate(lines)
                row["rates"].append(len(lines) / (time.perf_counter() - start))
    rows = [row for row, _ in loaded]
    exact = rows[0]["translations"]
    for row in rows:
        translations = row.pop("translations")
        row["rate"] = statistics.median(row["rates"])
        row["ratio"] = row["rate"] / rows[0]["rate"]
        row["bleu"] = score(translations, references, trained.data.languages[1])["bleu"]["score"]
        row["equal"] = sum(map(str.__eq__, translations, exact))
    threads, rounds = options.threads, options.repetitions
    notes.insert(0, NOTE.format(threads=threads, repetitions=rounds, lines=len(lines)))
    table = Table(f"Serving: {options.run.resolve().name}", [Block(columns.SERVING, rows)], notes)
    results = {"threads": threads, "rows": rows}
    write_report(table, options.out / "serving.md", results, command, gpu=False)


def load(folder: Path, precision: str, options: Options) -> tuple[dict[str, Any], Translator]:
    """Load a bundle of an engine; return its line of the table, and the translator."""
    start = time.perf_counter()
    how: dict[str, Any] = {"precision": precision, "threads": options.threads}
    translator = Translator.load(folder, engine=folder.name, cpu=True, **how)
    seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in folder.glob("model.*"))
    name = folder.name if precision == "float32" else f"{folder.name}, {precision}"
    sizes = {"bytes": size, "mebibytes": size / 2**20}
    return {"variant": name, "load_seconds": seconds, "rates": [], **sizes}, translator


if __name__ == "__main__":
    sys.exit(run_script("serving", Options, run))
