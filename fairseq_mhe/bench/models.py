"""The models that are compared, built by fairseq from the command line that would train them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig
from torch import nn

from fairseq_mhe.bench.benchmark import INT8, STOCK, Settings
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.fairseq_fixes import bf16_is_not_tpu, fp16_without_gpu
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, Row, arch_name
from fairseq_mhe.models.build import build as build_model
from fairseq_mhe.models.build import make_task
from fairseq_mhe.models.packed import PackedLinear

_RECIPE = (
    *("--task", "translation", "--source-lang", "source", "--target-lang", "target"),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
    *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0"),
    *("--lr-scheduler", "inverse_sqrt", "--lr", "0.0005", "--warmup-updates", "4000"),
    "--share-all-embeddings",
)
_PRECISION = {"float32": (), "bf16": ("--bf16",), "fp16": ("--fp16",)}


def sizes(row: str) -> Row:
    """The sizes of a row.

    Raises:
        UserError: there is no row of that name.
    """
    rows = {**ROWS, **SMALL_ROWS}
    if row not in rows:
        raise UserError(f"unknown --row {row!r}; choose one of: {', '.join(rows)}")
    return rows[row]


def configuration(
    variant: str, settings: Settings, dtype: str, extra: Sequence[str] = ()
) -> DictConfig:
    """The configuration that ``fairseq-train`` would make for a model.

    Args:
        variant: ``STOCK``, or a kind of attention, ``INT8`` behind it or not.
        settings: row, device and seed.
        dtype: a key of ``DTYPES``.
        extra: further words of the command line.
    """
    words = ["no-data", *_RECIPE, *_model_words(variant, settings.row), *_PRECISION[dtype], *extra]
    words += ["--seed", str(settings.seed), *(["--cpu"] if settings.device == "cpu" else [])]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    # Our architectures apply these two themselves; stock fairseq's needs them as much.
    bf16_is_not_tpu(args)
    fp16_without_gpu(args)
    return convert_namespace_to_omegaconf(args)


def build(cfg: DictConfig, vocabulary: int) -> tuple[TranslationTask, Any]:
    """A task with a joined dictionary of made-up words, and the model, the same for a seed."""
    task = make_task(vocabulary, config=cfg.task)
    return task, build_model(cfg.model, task, cfg.common.seed)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters, shared ones once, and of the packed copies for inference on a CPU."""
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    plain = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return plain + sum(module.packed_bytes for module in packed)


def check_forced(length: int, found: set[int]) -> None:
    """See that all outputs have the length that was forced.

    Raises:
        RuntimeError: some have another length.
    """
    if found != {length}:
        raise RuntimeError(
            f"outputs of {length} tokens were forced, but there are some of {sorted(found)}"
        )


def _model_words(variant: str, row: str) -> list[str]:
    """fairseq-train's words for a row: fairseq's own model with its sizes, or ours of a kind."""
    if variant != STOCK:
        precision = ["--int8-generation"] if variant.endswith(INT8) else []
        return ["--arch", arch_name(row), "--attention", variant.removesuffix(INT8), *precision]
    words = ["--arch", "transformer"]
    for name, value in sizes(row).options().items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words
