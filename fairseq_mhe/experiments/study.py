"""A study: variants of a recipe, compared with a reference over several seeds, as a YAML file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import check_input
from fairseq_mhe.models.options import PLACES


@dataclass(frozen=True)
class Variant:
    """One way to build and train the model of a study's recipe."""

    name: str
    reference: str  # the variant to compare with; a reference names itself
    attention: Mapping[str, str]  # place -> kind
    overrides: Sequence[str] = ()  # options of the recipe, GROUP.NAME=VALUE
    updates: float = 1.0  # as a share of the recipe's; 0: not trained
    precision: str | None = None  # None: as the command says
    #: "variant": the one to start from, with the same seed; further options of `convert`.
    start: Mapping[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The variant that this one starts from, or this one if it starts from scratch."""
        return str(self.start.get("variant", self.name))


@dataclass(frozen=True)
class Study:
    """The content of a study's YAML file; its form is in docs/experiments.md."""

    name: str
    question: str
    base: str  # the row whose recipe all variants follow
    seeds: Sequence[int]
    variants: Sequence[Variant]
    data: str = ""  # the corpus on which it was made

    def selected(self, names: str | None, references: bool = True) -> "Study":
        """Return the study of the variants in ``names``, and of the variants that these need.

        A variant needs the one that it starts from and, if asked for, its reference.
        """
        known = {variant.name: variant for variant in self.variants}
        needed = list(known) if names is None else names.split(",")
        for name in needed:  # what is appended is looked at, too
            if name not in known:
                raise UserError(f"--only {name}: unknown; choose from {', '.join(known)}")
            if references and known[name].reference not in needed:
                needed.append(known[name].reference)
            if known[name].origin not in needed:
                needed.append(known[name].origin)
        return replace(self, variants=[v for v in self.variants if v.name in needed])

    def families(self) -> list[list[Variant]]:
        """Return each variant that starts from scratch, with all that descend from it."""
        families: dict[str, list[Variant]] = {}
        for variant in self.variants:
            families.setdefault(self.first(variant).name, []).append(variant)
        return list(families.values())

    def first(self, variant: Variant) -> Variant:
        """Return the variant from which this one descends, and which starts from scratch.

        Raises ValueError if there is none, because variants start from each other.
        """
        known = {each.name: each for each in self.variants}
        first = variant
        for _ in known:
            if not first.start:
                return first
            first = known[first.origin]
        raise ValueError(f"{variant.name} starts from its own model: change its start")


def read_study(path: Path) -> Study:
    """Read a study's YAML file; UserError names the file and the key that is wrong."""
    check_input(path, "give the path of a study (a .yaml file, as in scripts/studies/)")
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it has no keys")
        content = dict(content)
        variants = content.pop("variants")
        reference = content.pop("reference")
        study = Study(
            path.stem,
            question=str(content.pop("question")),
            base=str(content.pop("base")),
            seeds=list(dict.fromkeys(map(int, content.pop("seeds")))),
            variants=[
                _read_variant(str(name), options or {}, str(reference))
                for name, options in variants.items()
            ],
            data=str(content.pop("data", "")),
        )
    except KeyError as error:
        raise UserError(f"{path} has no {error.args[0]}: add it") from None
    except (AttributeError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{path} is no study: {error}") from None
    if content:
        raise UserError(f"{path} sets {min(content)}, which no study has: remove it")
    names = [variant.name for variant in study.variants]
    for variant in study.variants:
        for other in (variant.reference, variant.origin):
            if other not in names:
                problem = f"{path}: {variant.name} needs the variant {other}"
                raise UserError(f"{problem}, which is missing: add it")
    try:
        study.families()
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return study


def _read_variant(name: str, options: Mapping[str, Any], reference: str) -> Variant:
    """Return a variant; a name that is a kind of attention stands for that kind."""
    rest = dict(options)
    default = rest.pop("attention", name if name in KINDS else None)
    attention = {place: rest.pop(f"{place}_attention", default) for place in PLACES}
    for place, kind in attention.items():
        if kind not in KINDS:
            advice = f"set attention to one of {', '.join(KINDS)}"
            raise ValueError(f"the {place} attention of {name} is {kind!r}: {advice}")
    if "start" in rest and len(set(attention.values())) > 1:
        raise ValueError(f"{name} has a start: give one kind of attention for all places")
    own = {}
    for key in ("updates", "precision", "start", "reference"):
        if key in rest:
            own[key] = rest.pop(key)
    if "heads" in rest:
        rest |= _head_options(str(rest.pop("heads")))
    for key in rest:
        if "." not in str(key):
            form = "GROUP.NAME: VALUE, such as optimization.lr: [0.001]"
            raise ValueError(f"{name} sets {key}: give options of the recipe as {form}")
    overrides = [f"{key}={json.dumps(value)}" for key, value in rest.items()]
    own.setdefault("reference", reference)
    return Variant(name, attention=attention, overrides=overrides, **own)


def _head_options(text: str) -> dict[str, int]:
    """Return the options of "4x32": four heads of width 32 on both sides."""
    heads, _, width = text.partition("x")
    return {
        "model.encoder_attention_heads": int(heads),
        "model.decoder_attention_heads": int(heads),
        "model.attention_head_dim": int(width),
    }
