"""``fairseq-mhe recipe``: print a recipe as a command line of fairseq-train, or as YAML."""

import os
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path

from fairseq_mhe.common.arguments import add_options
from fairseq_mhe.runs.processes import OWN_USER_DIR
from fairseq_mhe.runs.recipe_options import Overrides
from fairseq_mhe.runs.recipes import ALL_NAMES, read_recipe, recipe


def add_arguments(parser: ArgumentParser) -> None:
    help_ = f"{', '.join(ALL_NAMES)}; or a YAML file of your own"
    parser.add_argument("name", metavar="NAME", help=help_)
    add_options(parser, Overrides)
    help_ = "print the whole recipe as YAML; change a copy and give it as --recipe FILE"
    parser.add_argument("--yaml", action="store_true", help=help_)


def run(args: Namespace) -> None:
    """Print a recipe's command line, in which users replace DATA/bin, the kind and the seed."""
    if args.name.endswith((".yaml", ".yml")):
        chosen = read_recipe(Path(args.name), args.overrides)
    else:
        chosen = recipe(args.name, ALL_NAMES, args.overrides)
    if args.yaml:
        print(chosen.composed, end="")
        return
    package = os.environ.get(OWN_USER_DIR, "fairseq_mhe")
    example = ["DATA/bin", "--user-dir", package, "--attention", "mhe_mul", "--seed", "1"]
    print(shlex.join(["fairseq-train", *example, *chosen.training.words()]))
