"""Compute tables of translation again from kept runs, by the statistics of today.

python scripts/recompute.py results/multi30k/table.json --archives results/multi30k/runs.tar.xz \
    --references M30K/raw/test.de --language de

reads the table's JSON, computes BLEU, PRR, intervals and p again from the kept hypotheses, and
overwrites JSON and Markdown, and the picture with --picture. Several JSON files become one table
with the seeds of all, written to --out.
"""

import json
import re
import tarfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.tables import listed
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.report.plots import plot_translation
from fairseq_mhe.report.results import BASELINE, compared, mean
from fairseq_mhe.report.significance import sample
from fairseq_mhe.report.table import Table, deviation, seed_words
from fairseq_mhe.report.translation_table import blocks_of
from fairseq_mhe.runs import scoring

#: Notes of earlier versions that do not hold for the new numbers.
_OUTDATED = re.compile(
    r"^- (BLEU |±|PRR|Computed again|Tokenised BLEU|The paper's numbers|Beside |Seeds: mh)"
)


def main() -> None:
    """Read the tables and write one."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("tables", nargs="+", type=Path, help="JSON files of tables")
    add("--archives", nargs="+", type=Path, required=True, help="archives of the tables' runs")
    add("--references", type=Path, required=True, help="detokenised references")
    add("--language", required=True, help="target language")
    add("--out", type=Path, help="Markdown file to write (default: that beside the JSON)")
    add("--picture", type=Path, help="PNG file to write")
    args = parser.parse_args()
    kept: dict[str, Any] = {}
    for archive in args.archives:
        kept |= read_archive(archive)
    rows = recompute(merged(args.tables), kept, list(read_lines(args.references)), args.language)
    write(rows, kept, args)


def read_archive(archive: Path) -> dict[str, dict[str, Any]]:
    """Return name of a run -> name of a file -> its content; nothing is extracted."""
    runs: dict[str, dict[str, Any]] = {}
    with tarfile.open(archive) as members:
        for member in members:
            stream = members.extractfile(member)
            if stream is None:
                continue
            run, name = Path(member.name).parts[0], Path(member.name).name
            text = stream.read().decode()
            content = json.loads(text) if name.endswith(".json") else text.splitlines()
            runs.setdefault(run, {})[name] = content
    return runs


def merged(tables: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the rows of all tables; a row of several tables has the seeds of all."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for table in tables:
        for row in read_json(table, list):
            known = rows.setdefault((row["row"], row["attention"]), {**row, "seeds": []})
            known["seeds"] = sorted({*known["seeds"], *row["seeds"]})
    return list(rows.values())


def recompute(
    rows: list[dict[str, Any]], kept: dict[str, Any], references: list[str], language: str
) -> list[dict[str, Any]]:
    """Return the rows with values from the kept runs; UserError if the scores differ."""
    samples = {}
    for row in rows:
        if missing := [name for name in run_names(row) if name not in kept]:
            raise UserError(f"no archive has {', '.join(missing)}: add one to --archives")
        runs = [kept[name] for name in run_names(row)]
        samples[row["row"], row["attention"]] = sample(
            [run["hypotheses.txt"] for run in runs], references
        )
    for row in rows:
        runs = [kept[name] for name in run_names(row)]
        of_row = samples[row["row"], row["attention"]]
        known = [run["scores.json"]["bleu"]["score"] for run in runs]
        if max(abs(of_row.scores - known)) > 0.001:
            raise UserError(f"{run_names(row)}: the scores are of other references")
        scores = scoring.score(runs[0]["hypotheses.txt"], references, language)
        losses = [min(loss for _, loss in points(run)) for run in runs]
        row |= {
            "bleu": mean(known),
            "bleu_confidence": round(of_row.half_width(), 4),
            "bleu_deviation": deviation(known),
            "chrf": mean([run["scores.json"]["chrf"]["score"] for run in runs]),
            "bleu_tokenised": mean([other_score(run, "tokenised") for run in runs]),
            "bleu4": mean([other_score(run, "given_tokens") for run in runs]),
            "valid_loss": mean(losses),
            "tokens_per_second": mean([run["metrics.json"]["tokens_per_second"] for run in runs]),
            "sentences_per_second": mean(
                [run["generation.json"]["sentences_per_second"] for run in runs]
            ),
            **asdict(compared(of_row, samples.get((row["row"], BASELINE)))),
            "signature": scores["bleu"]["signature"],
            "chrf_signature": scores["chrf"]["signature"],
        }
    return rows


def other_score(run: dict[str, Any], name: str) -> float | None:
    """Return a score that only some runs have."""
    return (run["scores.json"].get(name) or {}).get("score")


def run_names(row: dict[str, Any]) -> list[str]:
    """Return the names of a row's run folders."""
    return [f"{row['row']}-{row['attention']}-seed{seed}" for seed in row["seeds"]]


def points(run: dict[str, Any]) -> list[tuple[float, float]]:
    """Return updates and loss of each validation."""
    valid: list[tuple[float, float]] = run["metrics.json"]["valid"]
    return valid


def write(rows: list[dict[str, Any]], kept: dict[str, Any], args: Namespace) -> None:
    """Write Markdown, JSON and the picture."""
    old_lines: list[str] = []
    for table in args.tables:
        old_lines += table.with_suffix(".md").read_text("utf-8").splitlines()
    title = old_lines[0].removeprefix("# ")
    first = rows[0]
    case = ", lower-cased" if "|case:lc|" in first["signature"] else ""
    chance = "sentences alone, so they do not cover other trainings"
    if any(len(row["seeds"]) > 1 for row in rows):
        chance = "sentences and seeds"
    date = time.strftime("%Y-%m-%d")
    seeds_of = {row["attention"]: " ".join(map(str, row["seeds"])) for row in rows}
    notes = [
        f"BLEU `{first['signature']}`, chrF `{first['chrf_signature']}`, on "
        f"{first['sentences']:,} detokenised{case} sentences (test).",
        "±: half the 95% interval of mean BLEU. PRR: BLEU in percent of mha's. p: two-sided, of "
        f"the difference from mha. Intervals and p: bootstrap with {scoring.RESAMPLES:,} resamples "
        f"over {chance}.",
        f"Tokenised BLEU: `{first['tokenised_signature']}` on Moses' tokens with hyphenated "
        "compounds split, as older papers report; no other column compares with it.",
        f"Seeds: {listed(seeds_of)}.",
        f"Computed again on {date} by `python scripts/recompute.py` from the hypotheses in the "
        "archives.",
    ]
    for line in old_lines:
        old_note = line.removeprefix("- ")
        old_note = re.sub("^Seeds: [0-9, ]+[.] |; seeds [0-9, ]+(?=[.])", "", old_note)
        if line.startswith("- ") and not _OUTDATED.match(line) and old_note not in notes:
            notes.append(old_note)
    out = args.out or args.tables[0].with_suffix(".md")
    Table(title, blocks_of(rows), notes).write(out, rows)
    if args.picture:
        curves = {}
        if len({row["row"] for row in rows}) == 1:
            for row in rows:
                curves[row["attention"]] = [kept[name]["metrics.json"] for name in run_names(row)]
        seeds = sorted({seed for row in rows for seed in row["seeds"]})
        plot_translation(rows, curves, args.picture, f"{title}; {seed_words(seeds)}")


if __name__ == "__main__":
    main()
