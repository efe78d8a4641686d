"""How fast preparation is beside the classic pipeline: lines a second of each step, and memory.

    python results/prepare/compare.py

The classic one is that of fairseq's prepare-wmt14en2de.sh: Moses' perl scripts (of a clone, or of
the package mosestokenizer), subword-nmt, fairseq-preprocess.
"""

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json, write_text
from fairseq_mhe.common.forms import Form
from fairseq_mhe.common.system import cores, machine, software
from fairseq_mhe.prepare.config import PrepareConfig
from fairseq_mhe.prepare.corpora.known import run_script
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.pipeline import prepare
from synthetic import write_corpus

HELD_OUT = 1000  # pairs of valid and of test, which ours needs
SMALLER = 4  # memory is also measured on this part of the text
RUN = {"seconds": float, "steps": {str: float}}
RUN |= dict.fromkeys(("pairs", "workers", "peak_bytes", "kept"), int)
PARTIAL = Form({"options": {}, "runs": {str: RUN}}, "delete it and measure anew")
EVERY = 0.2  # seconds between looks at the memory
# Steps of the classic pipeline, in the folder of the work, named as ours where they do the same.
# What the package mosestokenizer lacks (two of Moses' scripts) is said here in a few words.
CLASSIC = {
    "normalise, tokenise": r"""for lang in en de; do
    perl "$NORMALISE" -l $lang < "$TEXT.$lang" |
        if [[ -f "$REMOVE" ]]; then perl "$REMOVE"
        else perl -CSD -pe 'chomp; s/\p{C}/ /g; $_ .= qq(\n)'; fi |
        perl "$TOKENIZER" -threads 8 -a -l $lang > tok.$lang
done""",
    "learn": 'cat tok.en tok.de | "$PYTHON" -m subword_nmt.learn_bpe -s "$MERGES" > code',
    "segment": """for lang in en de; do
    "$PYTHON" -m subword_nmt.apply_bpe -c code < tok.$lang > bpe.$lang
done""",
    # The rule of clean-corpus-n.perl.
    "clean": r"""if [[ -f "$CLEAN" ]]; then
        perl "$CLEAN" -ratio 1.5 bpe en de train 1 250
    else perl -e '
    open(my $e, "<", "bpe.en") or die; open(my $f, "<", "bpe.de") or die;
    open(my $eo, ">", "train.en") or die; open(my $fo, ">", "train.de") or die;
    while (my $x = <$e>) {
        my $y = <$f>; my @x = split(" ", $x); my @y = split(" ", $y);
        next if @x < 1 || @y < 1 || @x > 250 || @y > 250 || @x > 1.5 * @y || @y > 1.5 * @x;
        print $eo join(" ", @x), "\n"; print $fo join(" ", @y), "\n";
    }'; fi""",
    "binarise": """"$PYTHON" -m fairseq_cli.preprocess --source-lang en --target-lang de \
        --joined-dictionary --trainpref train --destdir bin --workers "$WORKERS" """,
}


def find_moses(clone: Path | None) -> dict[str, Path]:
    """Moses' perl scripts, of a clone or of the package mosestokenizer, which has but two of them.

    Raises:
        UserError: neither is there, or perl is missing.
    """
    if shutil.which("perl") is None:
        raise UserError("the classic pipeline needs perl, which is not installed")
    if clone is not None:
        scripts = clone.resolve() / "scripts"
        found = {
            "TOKENIZER": scripts / "tokenizer" / "tokenizer.perl",
            "NORMALISE": scripts / "tokenizer" / "normalize-punctuation.perl",
            "REMOVE": scripts / "tokenizer" / "remove-non-printing-char.perl",
            "CLEAN": scripts / "training" / "clean-corpus-n.perl",
        }
        if missing := [path for path in found.values() if not path.exists()]:
            raise UserError(f"{missing[0]} is missing; --moses must name a clone of mosesdecoder")
        return found
    package = importlib.util.find_spec("mosestokenizer")
    if package is None or package.origin is None:
        raise UserError(
            "Moses' scripts are missing: pip install mosestokenizer, or name a clone by --moses"
        )
    here, absent = Path(package.origin).parent, Path("/nowhere")
    tokenizer, normalise = here / "tokenizer-v1.1.perl", here / "normalize-punctuation.perl"
    return {"TOKENIZER": tokenizer, "NORMALISE": normalise, "REMOVE": absent, "CLEAN": absent}


def classic(args: argparse.Namespace) -> dict[str, Any]:
    """Prepare ``args.text`` in ``args.work``: the seconds of each step, and the pairs kept."""
    given: dict[str, Any] = {"TEXT": args.text, "MERGES": args.merges, "WORKERS": args.workers}
    given |= {"PYTHON": sys.executable, **find_moses(args.moses)}
    seconds = {}
    for name, script in CLASSIC.items():
        begun = time.monotonic()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=args.work,
            env=os.environ | {key: str(value) for key, value in given.items()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise UserError(f"step {name!r} of the classic pipeline failed: {done.stderr[-300:]!r}")
        seconds[name] = time.monotonic() - begun
    with (args.work / "train.en").open("rb") as text:
        return {"steps": seconds, "kept": sum(1 for _ in text)}


def ours(args: argparse.Namespace) -> dict[str, Any]:
    """The same in our way."""
    seconds: dict[str, float] = {}
    begun = time.monotonic()

    def report(step: str, done: int, total: int) -> None:
        if done == total:
            seconds[step] = time.monotonic() - begun - sum(seconds.values())

    config = PrepareConfig(
        train=(args.text,),
        valid=args.text.with_name("valid"),
        test=args.text.with_name("test"),
        source_lang="en",
        target_lang="de",
        out=args.work,
        vocab_size=args.merges,
        punctuation=True,
        workers=args.workers,
    )
    manifest = read_manifest(prepare(config, report))
    return {"steps": seconds, "kept": manifest["lines"]["train"]}


def session_memory(session: int) -> int:
    """Bytes in use by all processes of a session, shared ones counted once (the kernel's PSS)."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) == session:
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(1024 * int(line.split()[1]) for line in lines if line[:4] == "Pss:")
        except (OSError, IndexError):
            continue  # it has just ended
    return total


def run_apart(words: list[str]) -> dict[str, Any]:
    """This script with ``words`` in a session of its own: its report, seconds and memory."""
    command = [sys.executable, __file__, *words]
    begun, peak, done = time.monotonic(), 0, threading.Event()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:

        def watch() -> None:
            nonlocal peak
            while not done.wait(EVERY):
                peak = max(peak, session_memory(process.pid))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            printed, _ = process.communicate()
        finally:
            done.set()
            thread.join()
    if process.returncode:
        raise UserError(f"{shlex.join(command)} failed, see above")
    return {**json.loads(printed), "seconds": time.monotonic() - begun, "peak_bytes": peak}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All runs but those that an earlier call with the same options has done."""
    find_moses(args.moses)
    plan = {
        "classic": ("classic", args.pairs, args.workers),
        "ours": ("ours", args.pairs, args.workers),
    }
    if args.workers > 1:
        plan["ours, 1 core"] = ("ours", args.pairs, 1)
    plan["ours, smaller"] = ("ours", args.pairs // SMALLER, args.workers)
    record = args.out.with_name(f"{args.out.name}.partial.json")
    options = {"pairs": args.pairs, "merges": args.merges, "workers": args.workers}
    found: dict[str, Any] = {"options": None}
    if record.exists():
        found = read_json(record, PARTIAL)
    runs: dict[str, Any] = found["runs"] if found["options"] == options else {}
    with tempfile.TemporaryDirectory(prefix="fairseq-mhe-prepare-", dir=args.scratch) as scratch:
        for name, (pipeline, pairs, workers) in plan.items():
            if name in runs:
                continue
            text, work = Path(scratch).resolve() / str(pairs), Path(scratch).resolve() / "work"
            work.mkdir()
            if not text.exists():
                text.mkdir()
                for split, count in (("train", pairs), ("valid", HELD_OUT), ("test", HELD_OUT)):
                    write_corpus(text / split, count)
            print(f"{name}: {pairs:,} pairs, {workers} processes", file=sys.stderr)
            words = ["--run", pipeline, "--text", str(text / "train"), "--work", str(work)]
            words += ["--merges", str(args.merges), "--workers", str(workers)]
            words += ["--moses", str(args.moses)] if args.moses else []
            runs[name] = {"pairs": pairs, "workers": workers, **run_apart(words)}
            shutil.rmtree(work)
            write_json(record, {"options": options, "runs": runs})
    record.unlink(missing_ok=True)
    return runs


def markdown(report: dict[str, Any]) -> str:
    """The report for reading."""
    runs = report["runs"]
    mine, smaller = runs["ours"], runs["ours, smaller"]
    facts = report["machine"] | report["software"]
    facts |= {"date": report["date"], "command": f"`{report['command']}`"}

    steps = dict.fromkeys(step for run in runs.values() for step in run["steps"])
    titles = ["pairs", "processes", *(f"{step}, lines/s" for step in steps)]
    titles += ["end to end, lines/s", "end to end, s", "peak memory, GB", "pairs kept"]
    columns = [titles]
    for run in runs.values():
        seconds = [*(run["steps"].get(step) for step in steps), run["seconds"]]
        rates = [f"{2 * run['pairs'] / each:,.0f}" if each else "-" for each in seconds]
        column = [f"{run['pairs']:,}", str(run["workers"]), *rates, f"{run['seconds']:.0f}"]
        columns.append([*column, f"{run['peak_bytes'] / 1e9:.2f}", f"{run['kept']:,}"])
    ratio = runs["classic"]["seconds"] / mine["seconds"]
    lines = ["# Preparation beside the classic pipeline", ""]
    lines += [f"- {name}: {fact}" for name, fact in facts.items()]
    lines += [
        "",
        "Lines a second of each step (both sides counted), on the same text; peak memory of all "
        "processes together.",
        "The classic pipeline is that of fairseq's prepare-wmt14en2de.sh, with as many workers for "
        "fairseq-preprocess.",
        "",
        f"| | {' | '.join(runs)} |",
        f"|:--|{'--:|' * len(runs)}",
        *(f"| {' | '.join(row)} |" for row in zip(*columns, strict=True)),
        "",
        f"End to end ours is **{ratio:.1f} times** as fast as the classic one.",
    ]
    if one := runs.get("ours, 1 core"):
        speedup = one["seconds"] / mine["seconds"]
        steps_alone = sum(one["steps"].values()) / sum(mine["steps"].values())
        lines.append(
            f"{mine['workers']} processes are {speedup:.2f} times as fast as one, in the steps "
            f"alone {steps_alone:.2f} times: before them Python imports fairseq and torch, once."
        )
    growth = (mine["peak_bytes"] - smaller["peak_bytes"]) / (mine["pairs"] - smaller["pairs"])
    lines.append(f"From the smaller to the larger text memory grows by {growth:.0f} bytes a pair.")
    return "\n".join(lines) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options; those without help are for the processes that it starts."""
    add = parser.add_argument
    add("--pairs", type=int, default=1_000_000, help="pairs of text (default: %(default)s)")
    add("--merges", type=int, default=32000, help="BPE merges (default: %(default)s)")
    add("--workers", type=int, default=cores(), help="processes (default: all cores)")
    add("--moses", type=Path, metavar="CLONE", help="of mosesdecoder, for its perl scripts")
    add("--scratch", type=Path, metavar="FOLDER", help="for the texts meanwhile (default: /tmp)")
    add(
        "--out",
        type=Path,
        default=Path("runs/benchmark/prepare"),
        metavar="NAME",
        help="NAME.json and NAME.md are written (default: %(default)s)",
    )
    add("--run", choices=("ours", "classic"), help=argparse.SUPPRESS)
    add("--text", type=Path, help=argparse.SUPPRESS)
    add("--work", type=Path, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """Measure, write JSON and Markdown, and print the Markdown; or be one of the runs."""
    if args.run:
        print(json.dumps(ours(args) if args.run == "ours" else classic(args)))
        return
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
        "runs": measure(args),
    }
    write_json(args.out.with_name(f"{args.out.name}.json"), report)
    write_text(args.out.with_name(f"{args.out.name}.md"), markdown(report))
    print(markdown(report))


if __name__ == "__main__":
    run_script("benchmark_prepare.sh", (__doc__ or "").split("\n")[0], add_arguments, run)
