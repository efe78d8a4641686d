"""Sizes of the language models: the paper's, fairseq's own, and some for CPUs: ``--arch``."""

import argparse
from collections.abc import Callable
from functools import partial

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model_architecture

from fairseq_mhe.common.errors import one_clear_line
from fairseq_mhe.fairseq_fixes import bf16_is_not_tpu, fp16_without_gpu
from fairseq_mhe.models import language_model, roberta
from fairseq_mhe.models.architectures import Row

_Encoder = partial(Row, sides=("encoder",))
_Decoder = partial(Row, normalize_before=True, sides=("decoder",))

#: "base" is BERT's and the paper's (table 1); the others are for CPUs.
ROBERTA_ROWS = {
    "base": _Encoder(768, 3072, 12, 12, 0.1),
    "small": _Encoder(256, 1024, 4, 6, 0.1),
    "tiny": _Encoder(128, 512, 4, 4, 0.1),
}
#: fairseq's transformer_lm of the same names, whose other options they take too, and two for CPUs.
LM_ROWS = {
    "gpt": _Decoder(768, 3072, 12, 12, 0.1),
    "gpt2_small": _Decoder(1024, 4096, 16, 24, 0.1),
    "gpt2_medium": _Decoder(1280, 5120, 20, 36, 0.1),
    "gpt2_big": _Decoder(1600, 6400, 25, 48, 0.1),
    "wiki103": _Decoder(1024, 4096, 8, 16, 0.3),
    "small": _Decoder(256, 1024, 4, 6, 0.1),
    "tiny": _Decoder(128, 512, 4, 4, 0.1),
}


def _roberta(row: Row) -> Callable[[argparse.Namespace], None]:
    def configure(args: argparse.Namespace) -> None:
        row.give(args)
        roberta.fill(args)
        bf16_is_not_tpu(args)
        fp16_without_gpu(args)
        with one_clear_line(ValueError):
            roberta.check_roberta(args)

    return configure


def _lm(name: str, row: Row) -> Callable[[argparse.Namespace], None]:
    # Sizes of ours have fairseq's base architecture behind them, with GPT's activation.
    theirs = ARCH_CONFIG_REGISTRY.get(f"transformer_lm_{name}")

    def configure(args: argparse.Namespace) -> None:
        row.give(args)
        (theirs or ARCH_CONFIG_REGISTRY["transformer_lm_gpt"])(args)
        bf16_is_not_tpu(args)
        fp16_without_gpu(args)
        with one_clear_line(ValueError):
            language_model.check_lm(args)

    return configure


# The bare names are the first of the rows; fairseq registers that of a model with a dataclass with
# a function that does nothing, and none for one without.
for _name, _row in ROBERTA_ROWS.items():
    register_model_architecture(roberta.NAME, f"{roberta.NAME}_{_name}")(_roberta(_row))
register_model_architecture(roberta.NAME, roberta.NAME)(_roberta(ROBERTA_ROWS["base"]))
for _name, _row in LM_ROWS.items():
    register_model_architecture(language_model.NAME, f"{language_model.NAME}_{_name}")(
        _lm(_name, _row)
    )
ARCH_CONFIG_REGISTRY[language_model.NAME] = _lm("gpt", LM_ROWS["gpt"])
