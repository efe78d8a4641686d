"""``uptrain``: does starting from a trained MHA close the gap of kinds with fewer parameters?

The MHA of each seed is converted to each kind and trained further for a share of the updates
("uptraining", Ainslie et al. 2023, section 2.1). Beside it stand the same kinds from scratch, and
MHA with those further updates: uptrained models have seen more.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_mhe.common.arguments import some_of
from fairseq_mhe.convert.change_kind import convert
from fairseq_mhe.convert.fit import MEAN
from fairseq_mhe.runs.recipes import Recipe
from studies.study import MHA, Start, Study, Variant, add_sentences, everywhere

QUESTIONS = {
    "reference": "MHA",
    "scratch": "trained from scratch",
    "uptrained": "converted from MHA by least squares, and trained further",
    "further": "MHA trained further by as many updates",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``uptrain`` beside those of every study."""
    every = ",".join(MEAN)
    kinds = "kinds (default: %(default)s)"
    type_ = some_of(tuple(MEAN))
    parser.add_argument(
        "--attention", type=type_, default=every, metavar="KIND,...", help=kinds
    )
    add_further(parser, 0.2)


def add_further(parser: argparse.ArgumentParser, default: float) -> None:
    """Options of studies that train converted models further."""
    add_sentences(parser)
    words = "share of the updates for further training (default: %(default)s)"
    parser.add_argument("--further", type=float, default=default, metavar="F", help=words)


def variants(args: argparse.Namespace, recipe: Recipe) -> Sequence[Variant]:
    """MHA, and each kind from scratch and from MHA."""
    found = [Variant(MHA, "reference", everywhere(MHA), MHA)]
    for kind in args.attention:
        found.append(Variant(kind, "scratch", everywhere(kind), MHA))
        start = Start({"to": kind, "sentences": args.sentences}, _converter(kind))
        how: dict[str, Any] = {"updates": args.further, "start": start}
        found.append(Variant(f"uptrained-{kind}", "uptrained", everywhere(kind), MHA, **how))
    how = {"updates": args.further, "start": Start({"sentences": args.sentences}, _copy)}
    return [*found, Variant("further-mha", "further", everywhere(MHA), MHA, **how)]


def _converter(kind: str) -> Any:
    return lambda output, material: convert(output, kind, material)


def _copy(output: Path, material: Any) -> dict[str, Any]:
    shutil.copyfile(material.source.path, output)
    return {}


_TITLE = "Smaller kinds of attention from a trained MHA"
UPTRAINING = Study("uptraining", _TITLE, QUESTIONS, variants, add_arguments)
