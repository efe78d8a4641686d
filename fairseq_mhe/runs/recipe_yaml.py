"""Write the options of a training as a recipe, which `recipes` and fairseq-hydra-train read."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

import yaml
from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_mhe.common.files import Json
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.training import Training

#: Groups of which `_name` is chosen by an option of this name.
_CHOSEN = ("task", "criterion", "optimizer", "lr_scheduler")


def as_recipe(training: Training, decoding: Decoding | None) -> str:
    """Return the whole recipe as YAML, without the kind of attention and the seed."""
    options = training.recipe_options
    groups: Json = {"model": {"_name": options.pop("arch")}}
    for group in _CHOSEN:
        if group in options:
            groups[group] = {"_name": options.pop(group)}
    names_of = dict(_names_of_groups(groups))
    for name, value in options.items():
        group = next((g for g, names in names_of.items() if name in names), "model")
        groups.setdefault(group, {})[name] = value
    if decoding:
        groups["generation"] = asdict(decoding)
    return yaml.safe_dump(groups, sort_keys=False, default_flow_style=None)


def _names_of_groups(groups: Json) -> Iterator[tuple[str, set[str]]]:
    """Yield each group of fairseq's configuration with the names of its options.

    The fixed groups come first: an optimizer's lr, for example, refers to optimization.lr.
    """
    for field in fields(FairseqConfig):
        options: Any = field.default
        if hasattr(options, "__dataclass_fields__"):
            yield field.name, set(options.__dataclass_fields__)
    for group in _CHOSEN:
        if group not in groups:
            continue
        registry = TASK_DATACLASS_REGISTRY
        if group != "task":
            registry = REGISTRIES[group]["dataclass_registry"]
        chosen = registry.get(groups[group]["_name"])
        yield group, set(chosen.__dataclass_fields__) if chosen else set()
