"""The models that are compared, built by fairseq from the command line that would train them."""

import copy
import functools
from collections.abc import Sequence
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask
from omegaconf import DictConfig
from torch import nn

from fairseq_mhe.bench.benchmark import BF16, INT8, STOCK, Settings
from fairseq_mhe.common.arguments import as_words
from fairseq_mhe.models.architectures import arch_name, sizes
from fairseq_mhe.models.build import build as build_model
from fairseq_mhe.models.families import make_task
from fairseq_mhe.models.loss import criterion_for
from fairseq_mhe.models.optimizer import optimizer_for
from fairseq_mhe.models.packed import PackedLinear

LANGUAGES = ("source", "target")
_RECIPE = (
    *("--task", "translation", "--source-lang", LANGUAGES[0], "--target-lang", LANGUAGES[1]),
    *("--label-smoothing", "0.1"),
    *("--adam-betas", "(0.9, 0.98)", "--clip-norm", "0.0"),
    *("--lr-scheduler", "inverse_sqrt", "--lr", "0.0005", "--warmup-updates", "4000"),
    "--share-all-embeddings",
)


def configuration(
    variant: str, settings: Settings, dtype: str, extra: Sequence[str] = ()
) -> DictConfig:
    """The configuration that ``fairseq-train`` would make for a model.

    ``variant``: ``STOCK``, or a kind of attention, ``INT8`` or ``BF16`` behind it or not;
    ``dtype``: a key of ``DTYPES``; ``extra``: further words of the command line.
    """
    chosen: dict[str, Any]
    if variant == STOCK:  # without what is quicker of ours
        chosen = {"arch": "transformer", **sizes(settings.row).options()}
        chosen |= {"criterion": criterion_for("float32"), "optimizer": "adam"}
    else:
        kind = variant.removesuffix(INT8).removesuffix(BF16)
        chosen = {"arch": arch_name(settings.row), "attention": kind}
        chosen["int8_generation"] = variant.endswith(INT8)
        chosen["generation_precision"] = "bf16" if variant.endswith(BF16) else "float32"
        chosen |= {"criterion": criterion_for(dtype), "optimizer": optimizer_for(dtype)}
    chosen |= {
        dtype: dtype != "float32",
        "seed": settings.seed,
        "cpu": settings.device == "cpu",
    }
    return copy.deepcopy(configuration_of(("no-data", *_RECIPE, *as_words(chosen), *extra)))


@functools.cache  # parsing takes longer than many a repetition
def configuration_of(words: tuple[str, ...]) -> DictConfig:
    """What ``fairseq-train`` would make of a command line; remembered, so not to be changed."""
    args = options.parse_args_and_arch(options.get_training_parser(), list(words))
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
