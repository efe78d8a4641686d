"""How fast preparation is beside the classic pipeline: lines a second of each step, and memory at two sizes."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import write_json, write_text
from fairseq_mhe.common.system import machine, software
from fairseq_mhe.prepare.classic import ClassicPipeline, Moses, find_moses
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.corpora.source import run_script
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.parallel import available_cores
from fairseq_mhe.prepare.pipeline import prepare
from fairseq_mhe.prepare.synthetic import write_corpus

PAIRS = 1_000_000
HELD_OUT = 1000  # pairs of valid and of test, which ours needs
MERGES = 32000
SMALLER = 4  # memory is also measured on this part of the text
EVERY = 0.2  # seconds between looks at the memory
KIB = 1024
Result = dict[str, Any]


def session_memory(session: int) -> int:
    """Bytes in use by all processes of a session, what they share counted once (the kernel's PSS)."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) != session:
                continue
            for line in (process / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * KIB
        except (OSError, IndexError):
            continue  # it has just ended
    return total


@contextmanager
def watched(session: int) -> Iterator[list[int]]:
    """The highest `session_memory` so far, the only item of the list, while the block runs."""
    peak = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(EVERY):
            peak[0] = max(peak[0], session_memory(session))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def run_apart(words: list[str]) -> Result:
    """This module with ``words`` in a session of its own: what it prints, its seconds and its peak of memory.

    Raises:
        UserError: it fails.
    """
    command = [sys.executable, "-m", "fairseq_mhe.prepare.benchmark", *words]
    begun = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        with watched(process.pid) as peak:
            printed, _ = process.communicate()
        seconds = time.monotonic() - begun
    if process.returncode:
        raise UserError(f"{shlex.join(command)} failed, see above")
    return {**json.loads(printed), "seconds": seconds, "peak_bytes": peak[0]}


def ours(text: Path, work: Path, workers: int, merges: int) -> Result:
    """Prepare PREFIX ``text`` in the folder ``work``: the seconds of each step, and the pairs kept."""
    seconds: dict[str, float] = {}
    begun = time.monotonic()

    def report(step: str, done: int, total: int) -> None:
        if done == total:
            seconds[step] = time.monotonic() - begun - sum(seconds.values())

    config = PrepareConfig(
        train=(text,),
        valid=text.with_name("valid"),
        test=text.with_name("test"),
        source_lang="en",
        target_lang="de",
        out=work,
        vocab_size=merges,
        punctuation=True,
        workers=workers,
    )
    manifest = read_manifest(prepare(config, report))
    return {"steps": seconds, "kept": manifest["lines"]["train"]}


def classic(text: Path, work: Path, moses: Moses, workers: int, merges: int) -> Result:
    """The same by the classic pipeline."""
    pipeline = ClassicPipeline(text, work, moses, merges, workers)
    seconds = {}
    for name, step in pipeline.steps().items():
        begun = time.monotonic()
        step()
        seconds[name] = time.monotonic() - begun
    return {"steps": seconds, "kept": pipeline.kept()}


def planned(pairs: int, cores: int) -> dict[str, tuple[str, int, int]]:
    """Name -> which pipeline, pairs, processes."""
    runs = {"classic": ("classic", pairs, cores), "ours": ("ours", pairs, cores)}
    if cores > 1:
        runs["ours, 1 core"] = ("ours", pairs, 1)
    runs["ours, smaller"] = ("ours", pairs // SMALLER, cores)
    return runs


def measure(args: argparse.Namespace, out: Path) -> dict[str, Result]:
    """All runs, those excepted that an earlier call has done with the same options."""
    find_moses(args.moses)
    results: dict[str, Result] = {}
    partial = out.with_name(f"{out.name}.partial.json")
    options = {"pairs": args.pairs, "merges": args.merges, "workers": args.workers}
    if (
        partial.exists()
        and (found := json.loads(partial.read_text(encoding="utf-8")))["options"] == options
    ):
        results = found["runs"]
    with tempfile.TemporaryDirectory(prefix="fairseq-mhe-prepare-", dir=args.scratch) as scratch:
        for name, (pipeline, pairs, workers) in planned(args.pairs, args.workers).items():
            if name in results:
                continue
            text = Path(scratch) / str(pairs) / "train"
            if not text.parent.exists():
                text.parent.mkdir()
                write_corpus(text, pairs)
                for split in ("valid", "test"):
                    write_corpus(text.with_name(split), HELD_OUT)
            work = Path(scratch) / "work"
            work.mkdir()
            print(f"{name}: {pairs:,} pairs, {workers} processes", file=sys.stderr)
            words = [
                "--run",
                pipeline,
                "--text",
                str(text),
                "--work",
                str(work),
                "--merges",
                str(args.merges),
            ]
            moses = ["--moses", str(args.moses)] if args.moses else []
            measured = run_apart([*words, "--workers", str(workers), *moses])
            results[name] = {"pairs": pairs, "workers": workers, **measured}
            shutil.rmtree(work)
            write_json(partial, {"options": options, "runs": results})
    partial.unlink(missing_ok=True)
    return results


def markdown(report: Result) -> str:
    """The report for reading."""
    runs: dict[str, Result] = report["runs"]
    ours_run, classic_run = runs["ours"], runs["classic"]
    ratio = classic_run["seconds"] / ours_run["seconds"]
    facts = {
        **report["machine"],
        **report["software"],
        "date": report["date"],
        "command": f"`{report['command']}`",
    }
    lines = [
        "# Preparation beside the classic pipeline",
        "",
        *(f"- {name}: {fact}" for name, fact in facts.items()),
        "",
    ]
    lines += [
        "Lines a second of each step (both sides counted), on the same text; peak memory of all processes together.",
        "The classic pipeline is that of fairseq's prepare-wmt14en2de.sh, with as many workers for fairseq-preprocess.",
        "",
    ]
    names = list(dict.fromkeys(step for run in runs.values() for step in run["steps"]))
    lines += [f"| | {' | '.join(runs)} |", f"|:--|{'--:|' * len(runs)}"]
    rows: list[tuple[str, Callable[[Result], str]]] = [
        ("pairs", lambda run: f"{run['pairs']:,}"),
        ("processes", lambda run: str(run["workers"])),
        *(
            (f"{step}, lines/s", lambda run, step=step: _rate(run, run["steps"].get(step)))
            for step in names
        ),
        ("end to end, lines/s", lambda run: _rate(run, run["seconds"])),
        ("end to end, s", lambda run: f"{run['seconds']:.0f}"),
        ("peak memory, GB", lambda run: f"{run['peak_bytes'] / 1e9:.2f}"),
        ("pairs kept", lambda run: f"{run['kept']:,}"),
    ]
    lines += [
        f"| {title} | {' | '.join(show(run) for run in runs.values())} |" for title, show in rows
    ]
    lines += ["", f"End to end ours is **{ratio:.1f} times** as fast as the classic one."]
    if one := runs.get("ours, 1 core"):
        speedup = one["seconds"] / ours_run["seconds"]
        lines.append(f"{ours_run['workers']} processes are {speedup:.2f} times as fast as one.")
    growth = (ours_run["peak_bytes"] - runs["ours, smaller"]["peak_bytes"]) / (
        ours_run["pairs"] - runs["ours, smaller"]["pairs"]
    )
    lines.append(f"From the smaller to the larger text memory grows by {growth:.0f} bytes a pair.")
    return "\n".join(lines) + "\n"


def _rate(run: Result, seconds: float | None) -> str:
    return f"{2 * run['pairs'] / seconds:,.0f}" if seconds else "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options; those without help are for the processes that it starts."""
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, metavar="N", help="pairs of text (default: %(default)s)"
    )
    parser.add_argument(
        "--merges", type=int, default=MERGES, metavar="N", help="BPE merges (default: %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=available_cores(),
        metavar="N",
        help="processes (default: all cores)",
    )
    parser.add_argument(
        "--moses", type=Path, metavar="CLONE", help="a clone of mosesdecoder, for its perl scripts"
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="FOLDER",
        help="where the texts go meanwhile (default: /tmp)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/benchmark/prepare"),
        metavar="NAME",
        help="NAME.json and NAME.md are written (default: %(default)s)",
    )
    parser.add_argument("--run", choices=("ours", "classic"), help=argparse.SUPPRESS)
    parser.add_argument("--text", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """Measure, write JSON and Markdown, and print the Markdown; or be one of the runs."""
    if args.run == "ours":
        print(json.dumps(ours(args.text, args.work, args.workers, args.merges)))
    elif args.run == "classic":
        print(
            json.dumps(
                classic(args.text, args.work, find_moses(args.moses), args.workers, args.merges)
            )
        )
    else:
        if args.pairs < SMALLER or args.workers < 1:
            raise UserError(f"at least {SMALLER} pairs and 1 process are needed")
        args.out.parent.mkdir(parents=True, exist_ok=True)
        report = {
            "benchmark": "prepare",
            "command": shlex.join(["bash", "scripts/benchmark_prepare.sh", *sys.argv[1:]]),
            "date": time.strftime("%Y-%m-%d"),
            "load_average": os.getloadavg()[0],
            "machine": machine("cpu"),
            "software": software(),
            "runs": measure(args, args.out),
        }
        text = markdown(report)
        write_json(args.out.with_name(f"{args.out.name}.json"), report)
        write_text(args.out.with_name(f"{args.out.name}.md"), text)
        print(text)


if __name__ == "__main__":
    run_script("benchmark_prepare.sh", __doc__, add_arguments, run)
