"""What the scripts of known corpora share: options, the folder of what they fetch, and counts against known ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import one_clear_line
from fairseq_mhe.prepare.config import ORIGINAL
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.text import count_lines, misaligned

ARCHIVES = "archives"


def add_source_arguments(parser: argparse.ArgumentParser, out: Path) -> None:
    """Where the data folder is made, and where its text comes from."""
    parser.add_argument(
        "--out",
        type=Path,
        default=out,
        metavar="DATA",
        help="folder to make (default: %(default)s)",
    )
    parser.add_argument(
        "--mirror", metavar="URL", help="download from URL/NAME; checksums stay the same"
    )
    parser.add_argument(
        "--archives",
        type=Path,
        metavar="FOLDER",
        help=f"where the downloads are, or are put (default: DATA/{ORIGINAL}/{ARCHIVES})",
    )


def archives_folder(out: Path, archives: Path | None) -> Path:
    """Where the downloads for the data folder ``out`` are kept, unless ``archives`` names another place."""
    return archives or out / ORIGINAL / ARCHIVES


def aligned_lines(source: Path, target: Path) -> int:
    """The number of lines that both sides have.

    Raises:
        UserError: they differ; both counts are told.
    """
    counts = count_lines(source), count_lines(target)
    if counts[0] != counts[1]:
        raise misaligned({source.name: counts[0], target.name: counts[1]})
    return counts[0]


def compare(found: Mapping[str, int], known: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Counts beside those that are known, for the manifest."""
    return {
        name: {"found": lines} | ({"known": known[name]} if name in known else {})
        for name, lines in found.items()
    }


def count_warnings(data: Path) -> list[str]:
    """A line for each count in the manifest of ``data`` that is not as it is known."""
    manifest = read_manifest(data)
    source: dict[str, Any] = manifest.get("source", {})
    counts = source.get("lines", {}) | compare(manifest["lines"], source.get("known_lines", {}))
    return [
        f"{name} has {count['found']:,} lines, known are {count['known']:,}"
        for name, count in counts.items()
        if count.get("known", count["found"]) != count["found"]
    ]


def finish(data: Path, warnings: Iterable[str]) -> None:
    """Warn, and say where the folder is."""
    for warning in warnings:
        print(f"fairseq-mhe: warning: {warning}", file=sys.stderr)
    print(data)


def run_script(
    name: str,
    description: str | None,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], None],
) -> None:
    """The command of data-prep/``name``."""
    parser = argparse.ArgumentParser(prog=name, description=description)
    add_arguments(parser)
    args = parser.parse_args()
    try:
        with one_clear_line():
            run(args)
    except KeyboardInterrupt:
        sys.exit(f"{name}: stopped; run the same command again to go on from here")
