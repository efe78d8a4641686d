"""``python -m debian``: Debian's translated documentation as text (debian_en_de.sh).

The text is then made a data folder, unless --text-only ends before that. What the text is read with
(requirements.txt) is imported when it is needed, so that --help works without it.
"""

import argparse
import importlib.util
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from debian.fetch import LANGS, RELEASE, Origin
from fairseq_mhe.common.arguments import add_options, from_options
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig, SubwordOptions, merges
from fairseq_mhe.prepare.corpora.known import ARCHIVES, finish, run_script
from fairseq_mhe.prepare.pipeline import prepare
from fairseq_mhe.prepare.progress import Report, shown_progress, silent

LIBRARIES = ("arpy", "lxml", "polib", "zstandard")
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
HELD_OUT = 2000
SHOWN = 8  # names in a warning


@dataclass(frozen=True, kw_only=True)
class Subwords(SubwordOptions):
    """The options of the subwords, with the default that suits the corpus."""

    vocab_size: int = merges(16000)


def make_text(
    out: Path,
    *,
    held_out: int = HELD_OUT,
    workers: int | None,
    report: Report = silent,
    **origin: Any,
) -> dict[str, Any]:
    """Put train, valid and test into DATA/original, and return what the manifest says of them.

    ``origin``: as `Origin` has it.

    Raises:
        UserError: a library is not installed; or as `assemble`.
    """
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"not installed: {', '.join(missing)}; pip install -r {shlex.quote(str(REQUIREMENTS))}"
        )
    from debian.assemble import assemble

    origin["archives"] = origin.get("archives") or out / ORIGINAL / ARCHIVES
    return assemble(out / ORIGINAL, Origin(**origin), held_out, workers or cores(), report)


def make_data_folder(
    out: Path, source: dict[str, Any], report: Report = silent, **subwords: Any
) -> Path:
    """Make the data folder ``out`` of the text in it that `make_text` has made.

    Raises:
        UserError: as `prepare`.
    """
    text = out / ORIGINAL
    config = PrepareConfig(
        train=(text / "train",),
        valid=text / "valid",
        test=text / "test",
        source_lang=LANGS[0],
        target_lang=LANGS[1],
        out=out,
        max_ratio=None,  # the text is clean; a German compound may stand for five English words
        **asdict(Subwords(**subwords)),
    )
    return prepare(config, report, source)


def warnings(source: dict[str, Any]) -> list[str]:
    """A line for each thing that was not to be had or could not be read."""
    found = []
    if source["missing"]:
        found.append(f"not in {source['release']}: {_some(source['missing'])}")
    for kind, counts in source["read"].items():
        if not counts.get("kept"):
            found.append(f"no pair of kind {kind!r}")
        if counts["unreadable"]:
            found.append(f"could not be read and left out: {_some(counts['unreadable'])}")
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more (see manifest.json)" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    path = partial(parser.add_argument, type=Path)
    path(
        "--out",
        default=Path("runs/debian-data"),
        metavar="DATA",
        help="folder to make (default: %(default)s)",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--folder",
        type=Path,
        help="read the .deb and Translation-{en,de} files that are there; nothing is downloaded",
    )
    place.add_argument(
        "--mirror", metavar="URL", help="download from a Debian mirror without apt (best by https)"
    )
    place.add_argument(
        "--sources-list",
        type=Path,
        metavar="FILE",
        help="a list of apt sources to use in place of the system's",
    )
    parser.add_argument("--release", help=f"of the mirror's releases (default: {RELEASE})")
    path(
        "--archives",
        metavar="FOLDER",
        help=f"where downloads are put (default: DATA/{ORIGINAL}/{ARCHIVES})",
    )
    parser.add_argument(
        "--packages", nargs="+", default=[], metavar="NAME", help="read these packages only"
    )
    parser.add_argument(
        "--held-out",
        type=int,
        default=HELD_OUT,
        metavar="N",
        help="pairs of valid, and of test (default: %(default)s)",
    )
    parser.add_argument(
        "--text-only",
        action="store_true",
        help=f"end with the text for own_corpus.sh, DATA/{ORIGINAL}/{{train,valid,test}}.{{en,de}}",
    )
    add_options(parser, Subwords, last=Subwords)


def run(args: argparse.Namespace) -> None:
    """Make the text and the folder, with bars for the steps."""
    if args.release and not args.mirror:
        raise UserError("--release is of a --mirror: give one, or leave --release away")
    with shown_progress() as report:
        source = make_text(
            args.out,
            held_out=args.held_out,
            workers=args.workers,
            report=report,
            archives=args.archives,
            folder=args.folder,
            mirror=args.mirror,
            release=args.release or RELEASE,
            sources_list=args.sources_list,
            packages=tuple(args.packages),
        )
        if not args.text_only:
            make_data_folder(args.out, source, report, **asdict(from_options(Subwords, args)))
    finish(args.out / ORIGINAL if args.text_only else args.out, warnings(source))


def main() -> None:
    """What data-prep/debian_en_de.sh calls."""
    run_script(
        "debian_en_de.sh",
        "A corpus of Debian's translated documentation and interfaces, as a data folder.",
        add_arguments,
        run,
    )


if __name__ == "__main__":
    main()
