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
    rows: list[dict[str, Any]] = []
    notes = []
    with quiet_fairseq(), TemporaryDirectory(dir=output_folder(options.out)) as folder:
        trained = open_trained(options.run, options.data)
        lines, references = (list(read_lines(trained.data.text("test", side))) for side in (0, 1))
        for engine in ("fairseq", "ctranslate2"):
            bundle = Path(folder, engine)
            try:
                export(trained, engine, bundle)
            except UserError as error:  # not installed, or cannot hold this kind of attention
                notes.append(f"{engine} is left out: {error}.")
                continue
            size = sum(path.stat().st_size for path in bundle.glob("model.*"))
            has_bf16 = engine == "fairseq" and bf16_available()
            for precision in ("float32", "bf16", "int8") if has_bf16 else ("float32", "int8"):
                name = engine if precision == "float32" else f"{engine}, {precision}"
                how: dict[str, Any] = {"precision": precision, "threads": options.threads}
                translator = Translator.load(bundle, engine=engine, cpu=True, **how)
                line = {"variant": name, "bytes": size, "rates": [], "translator": translator}
                rows.append(line)
        for _ in range(options.repetitions):
            for row in rows:
                start = time.perf_counter()
                row["translations"] = row["translator"].translate(lines)
                row["rates"].append(len(lines) / (time.perf_counter() - start))
    exact = rows[0]["translations"]
    for row in rows:
        del row["translator"]
        translations = row.pop("translations")
        row["rate"] = statistics.median(row["rates"])
        row["ratio"] = row["rate"] / rows[0]["rate"]
        row["bleu"] = score(translations, references, trained.data.languages[1])["bleu"]["score"]
        row["equal"] = sum(map(str.__eq__, translations, exact))
    conditions = f"All {len(lines):,} lines of test; threads {options.threads}; median of"
    conditions += f" {options.repetitions} rounds, in each of which all engines take a turn."
    notes += [conditions, "Equal lines: those with fairseq's translation in float32."]
    table = Table(f"Serving: {options.run.resolve().name}", [Block(columns.SERVING, rows)], notes)
    results = {"threads": options.threads, "rows": rows}
    write_report(table, options.out / "serving.md", results, command, gpu=False)


if __name__ == "__main__":
    sys.exit(run_script("serving", Options, run))
