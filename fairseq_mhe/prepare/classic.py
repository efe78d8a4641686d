"""The preparation as fairseq's prepare-wmt14en2de.sh does it: Moses' perl scripts, subword-nmt, fairseq-preprocess.

Only to be compared with: the commands and their order are that script's, the perl scripts are
Moses' own, from a clone of it or from the package mosestokenizer. Two scripts are not in the
package: what they do is said here in a few words.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.text import count_lines

Command = list[str | Path]

LANGS = ("en", "de")
THREADS = "8"  # the script's
REMOVE_NON_PRINTING: Command = ["perl", "-CSD", "-pe", r"chomp; s/\p{C}/ /g; $_ .= qq(\n)"]
# The rule of clean-corpus-n.perl -ratio 1.5 1 250: source, target, clean source, clean target.
CLEAN = r"""
open(my $e, "<", $ARGV[0]) or die; open(my $f, "<", $ARGV[1]) or die;
open(my $eo, ">", $ARGV[2]) or die; open(my $fo, ">", $ARGV[3]) or die;
while (my $x = <$e>) {
    my $y = <$f>; my @x = split(" ", $x); my @y = split(" ", $y);
    next if @x < 1 || @y < 1 || @x > 250 || @y > 250 || @x > 1.5 * @y || @y > 1.5 * @x;
    print $eo join(" ", @x), "\n"; print $fo join(" ", @y), "\n";
}
"""


@dataclass(frozen=True)
class Moses:
    """Moses' perl scripts; None where it has to do without."""

    tokenizer: Path
    normalise: Path
    remove_non_printing: Path | None
    clean: Path | None


def find_moses(folder: Path | None) -> Moses:
    """The scripts of a clone of Moses (``folder``), or of the package mosestokenizer.

    Raises:
        UserError: there is neither, or no perl.
    """
    if shutil.which("perl") is None:
        raise UserError("the classic pipeline needs perl, which is not installed")
    if folder is not None:
        scripts = folder / "scripts"
        moses = Moses(
            scripts / "tokenizer" / "tokenizer.perl",
            scripts / "tokenizer" / "normalize-punctuation.perl",
            scripts / "tokenizer" / "remove-non-printing-char.perl",
            scripts / "training" / "clean-corpus-n.perl",
        )
        if missing := [path for path in vars(moses).values() if not path.exists()]:
            raise UserError(f"{missing[0]} is not there; --moses must name a clone of mosesdecoder")
        return moses
    package = importlib.util.find_spec("mosestokenizer")
    if package is None or package.origin is None:
        raise UserError(
            "Moses' perl scripts are not there: pip install mosestokenizer, or name a clone by --moses"
        )
    place = Path(package.origin).parent
    return Moses(place / "tokenizer-v1.1.perl", place / "normalize-punctuation.perl", None, None)


def pipe(commands: Sequence[Command], inputs: Sequence[Path], output: Path) -> None:
    """Run ``commands`` one behind the other on the text of ``inputs``, as a shell's ``cat INPUTS | ... > OUTPUT``.

    Raises:
        UserError: one fails.
    """
    cat: Command = ["cat", *inputs]
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        out = stack.enter_context(output.open("wb"))
        stream = None
        for place, command in enumerate([cat, *commands]):
            last = place == len(commands)
            process = subprocess.Popen(
                command,
                stdin=stream,
                stdout=out if last else subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            if stream is not None:
                stream.close()
            stream = process.stdout
            processes.append(process)
    # Whoever writes to a command that has ended dies of SIGPIPE: a consequence, never the cause.
    failed = [
        " ".join(map(str, command))
        for process, command in zip(processes, [cat, *commands], strict=True)
        if process.wait() not in (0, -signal.SIGPIPE)
    ]
    if failed:
        raise UserError(f"{' and '.join(failed)} failed")


class ClassicPipeline:
    """Its steps, each a method; everything goes into one folder."""

    def __init__(self, text: Path, work: Path, moses: Moses, merges: int, workers: int) -> None:
        """``text``: prefix of the training text."""
        self.text, self.work, self.moses, self.merges, self.workers = (
            text,
            work,
            moses,
            merges,
            workers,
        )

    def steps(self) -> dict[str, Callable[[], None]]:
        """Name -> step, in order; named as ours where they do the same."""
        return {
            "normalise, tokenise": self.tokenise,
            "learn": self.learn,
            "segment": self.segment,
            "clean": self.clean,
            "binarise": self.binarise,
        }

    def tokenise(self) -> None:
        """Both sides, one after the other."""
        remove = self.moses.remove_non_printing
        for lang in LANGS:
            commands: list[Command] = [
                ["perl", self.moses.normalise, "-l", lang],
                ["perl", remove] if remove else REMOVE_NON_PRINTING,
                ["perl", self.moses.tokenizer, "-threads", THREADS, "-a", "-l", lang],
            ]
            pipe(commands, [Path(f"{self.text}.{lang}")], self.work / f"tok.{lang}")

    def learn(self) -> None:
        """Merges of both sides together."""
        command: Command = [sys.executable, "-m", "subword_nmt.learn_bpe", "-s", str(self.merges)]
        pipe([command], [self.work / f"tok.{lang}" for lang in LANGS], self.work / "code")

    def segment(self) -> None:
        """Both sides, one after the other."""
        command: Command = [sys.executable, "-m", "subword_nmt.apply_bpe", "-c", self.work / "code"]
        for lang in LANGS:
            pipe([command], [self.work / f"tok.{lang}"], self.work / f"bpe.{lang}")

    def clean(self) -> None:
        """By the lengths in subwords."""
        if self.moses.clean:
            words: Command = [
                "-ratio",
                "1.5",
                self.work / "bpe",
                *LANGS,
                self.work / "train",
                "1",
                "250",
            ]
            pipe([["perl", self.moses.clean, *words]], [], self.work / "clean.log")
        else:
            files: Command = [
                self.work / f"{name}.{lang}" for name in ("bpe", "train") for lang in LANGS
            ]
            pipe([["perl", "-e", CLEAN, *files]], [], self.work / "clean.log")

    def binarise(self) -> None:
        """fairseq's own command, with as many workers as we take."""
        options: Command = [
            "--source-lang",
            LANGS[0],
            "--target-lang",
            LANGS[1],
            "--joined-dictionary",
        ]
        place: Command = [
            "--trainpref",
            self.work / "train",
            "--destdir",
            self.work / "bin",
            "--workers",
            str(self.workers),
        ]
        pipe(
            [[sys.executable, "-m", "fairseq_cli.preprocess", *options, *place]],
            [],
            self.work / "binarise.log",
        )

    def kept(self) -> int:
        """Pairs in the end."""
        return count_lines(self.work / f"train.{LANGS[0]}")
