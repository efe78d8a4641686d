"""The models that are compared, built by fairseq from the command line that would train them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig
from torch import nn

from fairseq_mhe.bench.settings import INT8, STOCK, Settings
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.fairseq_fixes import bf16_is_not_tpu, fp16_without_gpu
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, Row, arch_name
from fairseq_mhe.models.packed import PackedLinear

_RECIPE = (
    *(
        "--task",
        "translation",
        "--source-lang",
        "source",
        "--target-lang",
        "target",
        "--share-all-embeddings",
    ),
    *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"),
    *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0"),
    *("--lr-scheduler", "inverse_sqrt", "--lr", "0.0005", "--warmup-updates", "4000"),
)
_PRECISION = {"float32": (), "bf16": ("--bf16",), "fp16": ("--fp16",)}


def sizes(row: str) -> Row:
    """The sizes of a row.

    Raises:
        UserError: there is none of that name.
    """
    rows = {**ROWS, **SMALL_ROWS}
    if row not in rows:
        raise UserError(f"unknown --row {row!r}; choose one of: {', '.join(rows)}")
    return rows[row]


def model_words(variant: str, row: str) -> list[str]:
    """fairseq-train's words for a model: stock fairseq's with the row's sizes, or ours of that row and kind."""
    if variant != STOCK:
        precision = ["--int8-generation"] if variant.endswith(INT8) else []
        return ["--arch", arch_name(row), "--attention", variant.removesuffix(INT8), *precision]
    words = ["--arch", "transformer"]
    for name, value in sizes(row).options().items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag] if value else []
        else:
            words += [flag, str(value)]
    return words


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
    words = ["no-data", *_RECIPE, *model_words(variant, settings.row), *_PRECISION[dtype], *extra]
    words += ["--seed", str(settings.seed), *(["--cpu"] if settings.device == "cpu" else [])]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    # Our architectures apply these two themselves; stock fairseq's needs them as much.
    bf16_is_not_tpu(args)
    fp16_without_gpu(args)
    return convert_namespace_to_omegaconf(args)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of the model's parameters, shared ones once, and of the packed copies that inference on a CPU makes."""
    packed = sum(
        module.packed_bytes for module in model.modules() if isinstance(module, PackedLinear)
    )
    return packed + sum(
        parameter.numel() * parameter.element_size() for parameter in model.parameters()
    )


def attention_sublayers(model: Any) -> dict[str, nn.Module]:
    """The sublayers that the attention benchmark measures, by place."""
    last = model.decoder.layers[-1]
    return {
        "encoder": model.encoder.layers[0].self_attn,
        "decoder": last.self_attn,
        "cross": model.decoder.layers[0].encoder_attn,
        "cross_last": last.encoder_attn,
    }
