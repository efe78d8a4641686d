"""``fairseq-mhe recipe``: the fairseq-train command line that a recipe becomes."""

import argparse
import shlex
from pathlib import Path

from fairseq_mhe.runs.recipes import FOLDER, read_recipe, recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe recipe``."""
    help_ = f"{', '.join(_names())}; or a YAML file of your own"
    parser.add_argument("name", metavar="NAME", help=help_)
    help_ = "print the YAML, to be changed and given as --recipe FILE"
    parser.add_argument("--yaml", action="store_true", help=help_)


def _names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def run(args: argparse.Namespace) -> None:
    """Print the command line; DATA/bin, the kind of attention and the seed are the user's."""
    own = args.name.endswith((".yaml", ".yml"))
    chosen = read_recipe(Path(args.name)) if own else recipe(args.name, _names())
    if args.yaml:
        path = Path(args.name) if own else FOLDER / f"{chosen.row}.yaml"
        print(path.read_text(encoding="utf-8"), end="")
        return
    words = shlex.join(chosen.training.words())
    print(f"fairseq-train DATA/bin --user-dir fairseq_mhe --attention mhe_mul --seed 1 {words}")
