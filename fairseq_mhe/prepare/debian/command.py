"""data-prep/debian_en_de.sh: a corpus of Debian's translated documentation and interfaces, as a data folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.command import SubwordOptions, add_subword_arguments, settled
from fairseq_mhe.prepare.config import ORIGINAL, PrepareConfig
from fairseq_mhe.prepare.corpora.source import ARCHIVES, archives_folder, finish, run_script
from fairseq_mhe.prepare.debian.apt import from_apt
from fairseq_mhe.prepare.debian.corpus import KINDS, Corpus, record
from fairseq_mhe.prepare.debian.deb import read_package
from fairseq_mhe.prepare.debian.fetch import LANGS, Fetched, from_folder
from fairseq_mhe.prepare.debian.mirror import from_mirror
from fairseq_mhe.prepare.debian.packages import PACKAGES
from fairseq_mhe.prepare.parallel import available_cores, ordered_map
from fairseq_mhe.prepare.pipeline import prepare, silent
from fairseq_mhe.prepare.progress import shown_progress
from fairseq_mhe.prepare.steps import Report, Steps, open_steps, read_manifest

MERGES = 16000
HELD_OUT = 2000
RELEASE = "stable"
SHOWN = 8  # names in a warning


def fetch(
    out: Path,
    *,
    folder: Path | None,
    mirror: str | None,
    release: str,
    archives: Path,
    sources_list: Path | None,
    packages: Sequence[str],
    report: Report,
) -> Fetched:
    """Bring the packages together: from ``folder``, from ``mirror``, or else through apt.

    Raises:
        UserError: they cannot be had.
    """
    if folder is not None:
        if not folder.is_dir():
            raise UserError(f"{folder} is not there; --folder must name a folder with .deb files")
        return from_folder(
            folder, packages, {path: read_package(path).name for path in folder.glob("*.deb")}
        )
    if mirror is not None:
        return from_mirror(mirror, release, archives, PACKAGES, packages, report)
    return from_apt(out / "apt", archives, PACKAGES, packages, sources_list, report)


def assemble(
    steps: Steps, fetched: Fetched, held_out: int, workers: int, report: Report
) -> dict[str, Any]:
    """Put train, valid and test into the folder of ``steps``, and return what the manifest says of them.

    Raises:
        UserError: a package is damaged, the disk is too small, or there are too few pairs.
    """
    packages = list(ordered_map(read_package, fetched.packages, workers))
    corpus = Corpus(steps, packages, fetched.descriptions)
    corpus.unpack(workers, report)
    read = {kind: corpus.read(kind, workers, report) for kind in KINDS}
    counts = corpus.split(held_out)
    steps.write("complete")
    return {
        "corpus": "debian",
        "release": fetched.release,
        "packages": {package.name: record(package) for package in packages},
        "descriptions": {
            lang: [sha256(path) for path in fetched.descriptions[lang]] for lang in LANGS
        },
        "missing": sorted(fetched.missing),
        "read": read,
        "split": counts,
    }


def prepare_debian(
    out: Path,
    *,
    folder: Path | None = None,
    mirror: str | None = None,
    release: str = RELEASE,
    archives: Path | None = None,
    sources_list: Path | None = None,
    packages: Sequence[str] = (),
    held_out: int = HELD_OUT,
    report: Report = silent,
    **subwords: Unpack[SubwordOptions],
) -> Path:
    """Make the data folder ``out`` of Debian's translations, or what of it is not there yet, and return its path.

    ``folder``: .deb and Translation files that are there already; ``mirror`` and ``release``:
    download from there without apt; else apt downloads, by ``sources_list`` where the system's own
    shall not be used. ``archives``: where downloads are put. ``packages``: these only.
    ``held_out``: pairs of valid, and of test.

    Raises:
        UserError: as `fetch`, `assemble` and `prepare`.
    """
    original = out / ORIGINAL
    if held_out < 1:
        raise UserError(f"--held-out is {held_out}; valid and test need at least one pair each")
    with open_steps(original, {"corpus": "debian"}) as steps:
        fetched = fetch(
            original,
            folder=folder,
            mirror=mirror,
            release=release,
            archives=archives_folder(out, archives),
            sources_list=sources_list,
            packages=packages,
            report=report,
        )
        source = assemble(
            steps, fetched, held_out, subwords.get("workers") or available_cores(), report
        )
    config = PrepareConfig(
        train=(original / "train",),
        valid=original / "valid",
        test=original / "test",
        source_lang=LANGS[0],
        target_lang=LANGS[1],
        out=out,
        max_ratio=None,  # the text is clean; a German compound may well stand for five English words
        **settled(subwords, MERGES),
    )
    return prepare(config, report, source)


def warnings(data: Path) -> list[str]:
    """A line for each thing that was not to be had or could not be read."""
    source = read_manifest(data)["source"]
    found = []
    if source["missing"]:
        found.append(f"not in {source['release']}: {some(source['missing'])}")
    for kind, counts in source["read"].items():
        if not counts.get("kept"):
            found.append(f"no pair of kind {kind!r}")
        if counts["unreadable"]:
            found.append(f"could not be read and left out: {some(counts['unreadable'])}")
    return found


def some(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
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
    parser.add_argument(
        "--release", default=RELEASE, help="of the mirror's releases (default: %(default)s)"
    )
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
    add_subword_arguments(parser, "bpe", MERGES)


def run(args: argparse.Namespace) -> None:
    """Prepare the folder, with bars for the steps."""
    options = {name: value for name, value in vars(args).items() if name != "out"}
    with shown_progress() as report:
        prepare_debian(args.out, report=report, **options)
    finish(args.out, warnings(args.out))


def main() -> None:
    """What data-prep/debian_en_de.sh calls."""
    run_script("debian_en_de.sh", __doc__, add_arguments, run)
