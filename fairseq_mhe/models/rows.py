"""Which row of the table a model's sizes are, and the options that build the same model again."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.models.architectures import option_names
from fairseq_mhe.models.families import family_of


def nearest_row(
    options: Mapping[str, Any], on_command_line: bool = False
) -> tuple[str, dict[str, Any]]:
    """The row of its family with the fewest differences from flat ``options`` (first of equals).

    Dropout, which is no part of the sizes, does not count. ``on_command_line``: the differences are
    options of fairseq-train, which has none that turns layer normalisation before sublayers off.

    Returns: its name, and the model's own values of the options in which it differs.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name, row in family_of(options).rows.items():
        sizes = row.options()
        del sizes["dropout"]
        rows[name] = {
            key: options.get(key) for key, size in sizes.items() if options.get(key) != size
        }
    names = list(rows)
    if on_command_line:
        names = [name for name in rows if False not in rows[name].values()] or names
    nearest = min(names, key=lambda name: len(rows[name]))
    return nearest, rows[nearest]


def training_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """fairseq-train's options, by name, that build a model of ours.

    Dropout and heads of tasks, which are no part of the model, are left out.
    """
    family = family_of(options)
    arch = family.arch(nearest_row(options, on_command_line=True)[0])
    usual = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[arch](usual)
    given = {"attention": options.get("attention")}
    for name in sorted(option_names(family.name, on_command_line=True)):
        value = options.get(name)
        if value is None or "drop" in name or "checkpoint_heads" in name:
            continue
        # A reference to an option of the task, such as ${task.tokens_per_sample}, is no value.
        if value != getattr(usual, name, None) and not str(value).startswith("${"):
            given[name] = value
    return {"arch": arch, **given}


def fine_tuning_line(output: Path, options: Mapping[str, Any]) -> str:
    """How training goes on from a converted checkpoint."""
    flags = " ".join(as_words(training_options(options)))
    command = f"fairseq-train DATA-BIN --user-dir fairseq_mhe {flags}"
    return f"go on with: {command} --finetune-from-model {output} ..."
