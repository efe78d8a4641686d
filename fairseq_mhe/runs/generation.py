"""Translate a data set with fairseq-generate: every sentence, in order, detokenised."""

import re
import time
from collections.abc import Iterable
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_output, check_writable, write_json, write_text
from fairseq_mhe.common.progress import Board
from fairseq_mhe.prepare.data_folder import DataFolder
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.devices import Device
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.processes import Child, real_warnings, user_dir

_SPEED = re.compile(
    r"Translated ([\d,]+) sentences \(([\d,]+) tokens\) in [\d.]+s \(([\d.]+) sentences/s"
)
_HYPOTHESIS = re.compile(r"^H-(\d+)\t[^\t]*\t(.*)$", re.DOTALL)


def generation_arguments(
    model: Path, data: DataFolder, subset: str, decoding: Decoding, device: Device
) -> list[str]:
    """The words after ``fairseq-generate``."""
    return [
        str(data.binary),
        *("--user-dir", str(user_dir()), "--path", str(model), "--gen-subset", subset),
        *decoding.flags(),
        *device.flags(),
        # fairseq drops the last len % 8 sentences otherwise.
        *("--required-batch-size-multiple", "1", "--num-workers", "0"),
        *("--log-format", "none"),
    ]


def generate(
    run: Job, data: DataFolder, subset: str, decoding: Decoding, device: Device, board: Board
) -> None:
    """Translate ``subset`` of a data folder with a run's model, into the run's folder of that name.

    It gets hypotheses.txt beside copies of the references and sources (so that it can be read
    without the data), hypotheses.tokens.txt and references.tokens.txt where the text was given
    tokenised, generation.json with the speed, and generate.log with all that fairseq
    printed.

    Raises:
        UserError: generation failed, or not every sentence came back.
    """
    folder = run.subset(subset)
    check_writable(folder)
    texts = corpus_texts(data, subset)
    count = len(texts["references"])
    log = folder / "generate.log"
    check_output(log)
    log.unlink(missing_ok=True)
    board.add(run.name, count)
    words = generation_arguments(run.model, data, subset, decoding, device)
    child = Child("fairseq_cli.generate", words, log, device.threads, "fairseq-generate")
    lines = _follow(child, run.name, board)
    subwords = parse_hypotheses(lines, count, log)
    hypotheses = data.detokenise(subwords)
    where = "on a GPU" if device.gpu else f"alone on the CPU, threads: {device.threads}"
    speed = {
        "sentences": count,
        "sentences_per_second": sentences_per_second(lines, log),
        "measured": f"{where}, beam {decoding.beam}, at most {decoding.max_tokens} tokens a batch",
    }
    texts["hypotheses"] = hypotheses
    if tokens := data.given_tokens(subwords):
        texts["hypotheses.tokens"] = tokens
    for name, lines_of_text in texts.items():
        write_lines(folder / f"{name}.txt", lines_of_text)
    write_json(folder / "generation.json", speed)


def corpus_texts(data: DataFolder, subset: str) -> dict[str, list[str]]:
    """The lines of a run folder's "sources" and "references", as the corpus has them.

    "references.tokens" too where the text was given tokenised.
    """
    sources, references = (list(read_lines(data.text(subset, side))) for side in (0, 1))
    texts = {"sources": sources, "references": references}
    if tokens := data.given_tokens(read_lines(data.segmented(subset, 1))):
        texts["references.tokens"] = tokens
    return texts


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text, whole or not at all."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def _follow(child: Child, name: str, board: Board) -> list[str]:
    """All lines of a running fairseq-generate, whose progress is shown."""
    lines: list[str] = []
    done, running = 0, True
    try:
        while running:
            time.sleep(0.2)
            running = child.running()
            new = child.new_lines()
            lines += new
            board.warn(name, real_warnings(new))
            done += sum(line.startswith("H-") for line in new)
            board.update(name, done)
        child.check(f"generating with {name}'s model")
    finally:
        child.stop()
    return lines


def parse_hypotheses(lines: Iterable[str], count: int, log: Path) -> list[str]:
    """The best hypotheses among fairseq-generate's lines for ``count`` sentences, in their order.

    Raises:
        UserError: a sentence is missing.
    """
    found: dict[int, str] = {}
    for line in lines:
        if match := _HYPOTHESIS.match(line):
            found.setdefault(int(match[1]), match[2])  # the first of --nbest is the best
    missing = [index for index in range(count) if index not in found]
    if missing or len(found) != count:
        lost = f"sentence {missing[0]} is missing (counted from 0)" if missing else ""
        which = lost or "there are too many"
        raise UserError(
            f"{len(found)} hypotheses for {count} sentences: {which}; nothing is scored; see {log}"
        )
    return [found[index] for index in range(count)]


def sentences_per_second(lines: Iterable[str], log: Path) -> float:
    """The speed that fairseq-generate reports: the search alone, without loading.

    Raises:
        UserError: it did not report one.
    """
    for line in lines:
        if match := _SPEED.search(line):
            return float(match[3])
    raise UserError(f"fairseq-generate did not report its speed; see {log}")
