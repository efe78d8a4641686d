"""``precision-study``: whether training in bf16 loses anything against float32."""

import argparse
from collections.abc import Sequence

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.recipes import Recipe
from studies.study import MHA, MHE, Study, Variant, everywhere

QUESTIONS = {"reference": "trained in float32", "bf16": "trained in bf16"}


def variants(args: argparse.Namespace, recipe: Recipe) -> Sequence[Variant]:
    """Both kinds in float32, then in bf16.

    Raises:
        UserError: the options name a precision.
    """
    if args.precision != "auto":
        raise UserError("--precision is what this study varies: leave it out")
    found = []
    for precision, question in (("float32", "reference"), ("bf16", "bf16")):
        options = {"bf16": precision == "bf16" or None, "fp16": None}
        for kind in (MHA, MHE):
            name, reference = f"{kind}-{precision}", f"{kind}-float32"
            found.append(Variant(name, question, everywhere(kind), reference, options))
    return found


PRECISION = Study("precision", "bf16 against float32", QUESTIONS, variants)
