"""Compose recipes, YAML files for fairseq-hydra-train, as options of fairseq-train."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, cast

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

import fairseq_mhe
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, check_input
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.options import kind_options
from fairseq_mhe.runs.decoding import Decoding
from fairseq_mhe.runs.training import OF_EACH_TRAINING, UNITS, Training

#: The folder of the package's recipes, one file for each row.
FOLDER = Path(fairseq_mhe.__file__).parent / "recipes"
#: Names of the translation recipes, of all recipes, and of language models' recipes.
NAMES = tuple(ROWS)
ALL_NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LANGUAGE_RECIPES = [name for name in ALL_NAMES if name not in NAMES]
#: Groups of a recipe that hold no options of fairseq-train.
_OTHER_GROUPS = ("hydra", "defaults", "generation")
#: Options that the commands set, since they depend on the machine and its folders.
_SET_BY_COMMANDS = ("data", "user_dir", "save_dir", "distributed_world_size", "cpu")
#: Why a recipe must not set an option -> these options.
_REFUSED = {
    "the command sets it": OF_EACH_TRAINING,
    "the data folder sets it": ("source_lang", "target_lang"),
    "bf16 or fp16 does it": ("amp", "memory_efficient_bf16", "memory_efficient_fp16"),
    "max_update ends training": ("max_epoch", "stop_time_hours", "stop_min_lr"),
    "sharded checkpoints are not supported": ("checkpoint_suffix", "use_sharded_state"),
    "a run resumes from checkpoint_last.pt": ("no_save", "no_last_checkpoints"),
    "a run resumes from checkpoint_last.pt (finetune_from_model starts from another model)": (
        *("restore_file", "continue_once", "reset_optimizer", "reset_lr_scheduler"),
        *("reset_dataloader", "reset_meters"),
    ),
}
#: What OmegaConf, PyYAML and conversions raise for a file of another form.
_WRONG_FORM = (
    *(OmegaConfBaseException, yaml.YAMLError, RecursionError),
    *(AttributeError, TypeError, ValueError),
)
_SIZES_OF_ATTENTION = ("attention_heads", "embed_dim")  # ends of options
_OVERRIDE = "override "  # hydra's word before a default that replaces another


@dataclass(frozen=True)
class Recipe:
    """How models of a row are trained, and how they translate."""

    row: str
    training: Training
    decoding: Decoding
    composed: str  # the whole recipe as YAML


def recipe(
    name: str, known: Collection[str] = NAMES, overrides: Sequence[str] = ()
) -> Recipe:
    """Return a recipe of the package; capitals do not matter. UserError for an unknown name."""
    if name.lower() not in known:
        raise UserError(f"unknown row {name!r}; choose one of: {', '.join(known)}")
    return read_recipe(FOLDER / f"{name.lower()}.yaml", overrides)


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe in a file, whose name is the row; raises UserError for other files.

    ``overrides``: options as ``GROUP.NAME=VALUE``, such as ``optimization.lr=[0.001]``.
    """
    config = compose(path, overrides)
    composed = OmegaConf.to_yaml(config)
    with _form_of(path):
        options, decoding = _read_groups(config)
    needed = ["model._name", "model.dropout", "optimization.max_update"]
    if not UNITS.keys() & options.keys():
        needed.append("dataset.max_tokens")
    for key in needed:
        if OmegaConf.select(config, key) is None:
            raise UserError(f"{path} has no {key}: add it")
    for reason, names in _REFUSED.items():
        for name in options.keys() & names:
            raise UserError(f"{path} sets {name}: remove it, as {reason}")
    training = Training(options)
    _check_numbers(path, training, decoding)
    if overrides or path.parent != FOLDER:
        _check_options(path, config, options, overrides)
    # Recipes with large mini-batches are for GPUs, which decode large batches too.
    if training.mini_batch >= 4096 and "max_tokens" not in config.get("generation", ()):
        decoding = replace(decoding, max_tokens=4096)
    return Recipe(path.stem.lower(), training, decoding, composed)


def overriding_options(overrides: Sequence[str]) -> Json:
    """Return the options of ``GROUP.NAME=VALUE`` words by name."""
    config = compose(None, overrides)
    with _form_of(Path("the options")):
        groups = cast(Json, OmegaConf.to_container(config, resolve=True))
        return {name: value for _, name, value in _options(groups)}


def compose(path: Path | None, overrides: Sequence[str] = ()) -> DictConfig:
    """Return a recipe with the recipes that its ``defaults:`` name, as hydra merges them.

    Without a ``path`` the overrides alone are the recipe. A default is looked up beside the file,
    then among the package's recipes. Options that the commands set are left out. Raises UserError
    for other files and for unknown overrides.
    """
    # hydra's compose refuses "override /criterion" without fairseq's own configuration, and with it
    # returns all options of fairseq.
    config = _with_defaults(path, ()) if path else OmegaConf.create()
    for override in overrides:
        key, is_pair, _ = override.removeprefix("+").partition("=")
        if not is_pair or "." not in key:
            advice = "give GROUP.NAME=VALUE, such as optimization.lr=[0.001]"
            raise UserError(f"{override!r} is no option of a recipe: {advice}")
        try:
            given = OmegaConf.from_dotlist([override.removeprefix("+")])
            config = _merged(config, given)
        except _WRONG_FORM as error:
            raise UserError(f"cannot set {override!r}: {error}") from None
    groups: Any = OmegaConf.to_container(config)
    kept = {}
    for group, values in groups.items():
        if group in ("hydra", "defaults"):
            continue
        if isinstance(values, dict):
            values = {
                name: v for name, v in values.items() if name not in _SET_BY_COMMANDS
            }
        if values != {}:
            kept[group] = values
    return OmegaConf.create(kept)


def _with_defaults(path: Path, within: tuple[Path, ...]) -> DictConfig:
    """Load a recipe and merge it with its defaults; ``within``: the files that lead to it."""
    check_input(path, "give the path of a recipe (a .yaml file)")
    if path in within:
        raise UserError(f"{path} is a default of itself: remove it from defaults")
    with _form_of(path):
        own = OmegaConf.load(path)
        if not isinstance(own, DictConfig):
            raise ValueError("its outermost value is no mapping")
        defaults = cast(Json, OmegaConf.to_container(own)).get("defaults") or []
        if not isinstance(defaults, list):
            raise ValueError("defaults is no list")
    if defaults and "_self_" not in defaults:
        raise UserError(
            f"{path}: add - _self_ as the last of its defaults, as hydra needs"
        )
    config = OmegaConf.create()
    for default in defaults or ["_self_"]:
        part: DictConfig | Json
        if default == "_self_":
            part = own
        elif isinstance(default, str):
            part = _with_defaults(_find(default, path), (*within, path))
        else:
            part = _group_default(default, path)
        with _form_of(path):
            config = _merged(config, part)
    return config


def _merged(config: DictConfig, other: Any) -> DictConfig:
    return cast(DictConfig, OmegaConf.merge(config, other))


def _find(name: str, path: Path) -> Path:
    """Return the file of a default of the recipe ``path``."""
    for folder in (path.parent, FOLDER):
        file = folder / f"{name.removesuffix('.yaml')}.yaml"
        if file.is_file():
            return file
    advice = f"name a recipe beside it, or one of {', '.join(ALL_NAMES)}"
    raise UserError(f"{path}: its default {name!r} does not exist: {advice}")


def _group_default(default: Any, path: Path) -> Json:
    """Return the options that a default of the form ``[override] /GROUP: NAME`` sets."""
    match default:
        case dict() if len(default) == 1:
            ((group, name),) = default.items()
            group = str(group).removeprefix(_OVERRIDE).strip().removeprefix("/")
            if isinstance(name, str) and group.isidentifier():
                return {group: {"_name": name}}
    raise UserError(
        f"{path}: cannot read the default {default!r}: name a recipe, or a group as in "
        "override /criterion: cross_entropy"
    )


@contextlib.contextmanager
def _form_of(path: Path) -> Iterator[None]:
    """Raise UserError if what the block reads of a recipe has another form."""
    try:
        yield
    except _WRONG_FORM as error:
        loops = isinstance(error, RecursionError)
        reason = "a value contains itself" if loops else error
        problem = f"is no recipe in fairseq-hydra-train's form: {reason}"
        raise UserError(f"{path} {problem}") from None


def _read_groups(config: DictConfig) -> tuple[Json, Decoding]:
    """Return fairseq-train's options and the decoding of a composed recipe."""
    groups: Any = OmegaConf.to_container(config, resolve=True)
    options: Json = {}
    group_of: dict[str, str] = {}
    for group, name, value in _options(groups):
        if options.get(name, value) != value:
            raise ValueError(f"{group_of[name]} and {group} both set {name}: remove one")
        options[name] = value
        group_of[name] = group
    expected = OmegaConf.create({"generation": Decoding})
    OmegaConf.set_readonly(expected.generation, False)  # the class is frozen
    given = groups.get("generation") or {}
    OmegaConf.merge(expected, {"generation": given})  # checks names and types
    decoding = Decoding(**given)
    if not (isfinite(decoding.lenpen) and isfinite(decoding.max_len_a)):
        raise ValueError("lenpen and max_len_a must be finite numbers")
    return options, decoding


def _options(groups: Json) -> Iterator[tuple[str, str, Any]]:
    """Yield fairseq-train's options in the groups of a recipe: group, name, value."""
    for group, values in groups.items():
        if group in _OTHER_GROUPS:
            continue
        by_name = {"_name": values} if isinstance(values, str) else values
        if not isinstance(by_name, dict):
            raise ValueError(f"{group} is no group of options")
        for name, value in by_name.items():
            if name == "_name":  # model._name is --arch, task._name is --task
                name = "arch" if group == "model" else group
            if value is not None:
                yield group, name, value


def _check_numbers(path: Path, training: Training, decoding: Decoding) -> None:
    """Raise UserError if updates, batch or beam are below 1, or hypotheses may have no token."""
    try:
        smallest = min(training.updates, training.batch_tokens)
        smallest = min(smallest, decoding.beam, decoding.max_tokens)
        lengths = decoding.max_len_a, decoding.max_len_a + decoding.max_len_b - 1
    except (AttributeError, TypeError, ValueError):
        smallest = 0
    if smallest < 1:
        numbers = "max_update, max_tokens, batch_size, beam and update_freq ([N])"
        raise UserError(f"{path}: {numbers} must be whole numbers of at least 1")
    if min(lengths) < 0:
        limits = "max_len_a must be at least 0, and max_len_a + max_len_b at least 1"
        raise UserError(f"{path}: {limits}")


def _check_options(
    path: Path, config: DictConfig, options: Json, overrides: Sequence[str]
) -> None:
    """Raise UserError if fairseq-train does not know an option, or refuses its value."""
    from fairseq import options as fairseq_options

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{path}: fairseq refuses an option: {message}")

    parser = fairseq_options.get_training_parser()
    parser.error = refuse
    # The sizes of attention are checked when its kind is known.
    checked = {}
    for name, value in options.items():
        if name not in kind_options() and not name.endswith(_SIZES_OF_ATTENTION):
            checked[name] = value
    words = ["DATA", *as_words(checked)]
    _, unknown = fairseq_options.parse_args_and_arch(parser, words, parse_known=True)
    groups = cast(Json, OmegaConf.to_container(config, resolve=True))
    for group, name, _ in _options(groups):
        if f"--{name.replace('_', '-')}" in unknown:
            key = f"{group}.{name}"
            on_command_line = any(f"{key}=" in override for override in overrides)
            where = "the command line" if on_command_line else path
            problem = f"{where} sets {key}, which fairseq does not know"
            raise UserError(f"{problem}: correct its name, or remove it")
