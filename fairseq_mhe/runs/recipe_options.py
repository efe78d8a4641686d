"""The options of commands that change a recipe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from fairseq_mhe.common.arguments import integer, option
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.runs.recipes import LANGUAGE_RECIPES, NAMES, Recipe, read_recipe, recipe


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """Options of a recipe as words; `Parser` finds them anywhere on the command line."""

    overrides: Sequence[str] = option(
        (),
        "options of the recipe to change, such as optimization.lr=[0.001]",
        positional=True,
        nargs="*",
        metavar="GROUP.NAME=VALUE",
    )


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe(Overrides):
    """Where a language model's recipe comes from, and what changes it."""

    #: The recipes of the package to choose from.
    names: ClassVar[Sequence[str]] = LANGUAGE_RECIPES
    recipe: Path | None = option(
        None,
        "YAML file of your own recipe, in place of a row (see fairseq-mhe recipe)",
        type=Path,
        metavar="FILE",
    )
    updates: int | None = integer(None, "updates (default: the recipe's)")

    def read(self, name: str | None, more: Sequence[str] = ()) -> Recipe:
        """Return the recipe of a name or of --recipe with all changes; UserError without either.

        ``more``: further overrides, which win over those of the command line.
        """
        if (name is None) == (self.recipe is None):
            raise UserError("give either a row or --recipe FILE")
        overrides = [*self.overrides, *more]
        if self.recipe:
            chosen = read_recipe(self.recipe, overrides)
        else:
            chosen = recipe(str(name), self.names, overrides)
        if self.updates:
            return replace(chosen, training=chosen.training.shortened(self.updates))
        return chosen


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(LanguageRecipe):
    """The same of a translation model, and the size of its batches."""

    names = NAMES
    batch_tokens: int | None = integer(
        None, "tokens of an update, on all devices together (default: the recipe's)"
    )
    max_tokens: int | None = integer(
        None, "most tokens of a mini-batch on one device (default: the recipe's)"
    )

    def read(self, name: str | None, more: Sequence[str] = ()) -> Recipe:
        """Return the recipe, as above; UserError for a language model's."""
        chosen = super().read(name, more)
        training = chosen.training
        if "tokens_per_sample" in training.options:
            raise UserError(
                f"{self.recipe} is for a language model: use fairseq-mhe pretrain"
            )
        if not (self.batch_tokens or self.max_tokens):
            return chosen
        if "max_tokens" not in training.options:
            advice = "leave --batch-tokens and --max-tokens out"
            raise UserError(f"{self.recipe} has batches of {training.batch}: {advice}")
        batched = training.batched(self.batch_tokens, self.max_tokens)
        return replace(chosen, training=batched)
