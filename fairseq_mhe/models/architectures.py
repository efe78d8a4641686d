"""The sizes of all models, the paper's (Xue & Aletras 2023) and smaller: ``--arch``."""

import argparse
import functools
from dataclasses import dataclass, fields
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY, register_model_architecture
from omegaconf import DictConfig

from fairseq_mhe.common.errors import UserError, one_clear_line
from fairseq_mhe.fairseq_fixes import bf16_is_not_tpu, fp16_without_gpu
from fairseq_mhe.models import language_model, roberta, transformer
from fairseq_mhe.models.options import MODEL_NAME, fill, plain_options


@dataclass(frozen=True)
class Row:
    """One size of Transformer.

    ``layers`` counts each of its ``sides``; ``stock``: fairseq's architecture that has the values
    of the options that are no sizes.
    """

    embed_dim: int
    ffn_embed_dim: int
    heads: int
    layers: int
    dropout: float
    normalize_before: bool = False
    sides: tuple[str, ...] = ("encoder", "decoder")
    stock: str = ""

    def options(self) -> dict[str, float]:
        """The row as fairseq's flat option names and values."""
        sizes: dict[str, float] = {}
        for side in self.sides:
            sizes[f"{side}_embed_dim"] = self.embed_dim
            sizes[f"{side}_ffn_embed_dim"] = self.ffn_embed_dim
            sizes[f"{side}_attention_heads"] = self.heads
            sizes[f"{side}_layers"] = self.layers
            sizes[f"{side}_normalize_before"] = self.normalize_before
        return {**sizes, "dropout": self.dropout}

    def fill(self, args: Any, config: type[FairseqDataclass]) -> None:
        """Set the options that ``args`` lacks: the sizes, then the defaults of ``config``."""
        for name, value in {**self._stock_options(args), **self.options()}.items():
            if not hasattr(args, name):
                setattr(args, name, value)
        fill(args, config)

    def _stock_options(self, args: Any) -> dict[str, Any]:
        """The values of fairseq's architecture, which has some that depend on what is given."""
        if not self.stock:
            return {}
        filled = argparse.Namespace(**{**self.options(), **vars(plain_options(args))})
        ARCH_CONFIG_REGISTRY[self.stock](filled)
        if hasattr(
            filled, "base_shuffle"
        ):  # False there, where fairseq's dataclass takes numbers
            filled.base_shuffle = int(filled.base_shuffle)
        return vars(filled)


# The feed-forward width is not published; 4 * embed_dim is Vaswani et al.'s (2017, table 3), whose
# rows these mirror.
ROWS = {
    "base": Row(512, 2048, 8, 6, 0.1),
    "16x32": Row(512, 2048, 16, 6, 0.1),
    "4x128": Row(512, 2048, 4, 6, 0.1),
    "4l": Row(512, 2048, 8, 4, 0.1),
    "8l": Row(512, 2048, 8, 8, 0.1),
    "12h": Row(768, 3072, 12, 6, 0.15),
    "big": Row(1024, 4096, 16, 6, 0.3),
}
# For smaller corpora: fairseq's transformer_iwslt_de_en with its recipe's dropout, Wu et al.'s
# (2021) Transformer-Tiny, and two sizes for CPUs; these are pre-norm, which trains stably without a
# long warm-up.
SMALL_ROWS = {
    "iwslt": Row(512, 1024, 4, 6, 0.3),
    "multi30k": Row(128, 256, 4, 4, 0.3),
    # The same, changed as the paper's rows are: heads, layers, width.
    "multi30k_8x16": Row(128, 256, 8, 4, 0.3),
    "multi30k_2x64": Row(128, 256, 2, 4, 0.3),
    "multi30k_3l": Row(128, 256, 4, 3, 0.3),
    "multi30k_6l": Row(128, 256, 4, 6, 0.3),
    "multi30k_6h": Row(192, 384, 6, 4, 0.3),
    "small": Row(256, 1024, 4, 3, 0.1, normalize_before=True),
    "tiny": Row(128, 512, 4, 2, 0.1, normalize_before=True),
}


_Encoder = functools.partial(Row, sides=("encoder",), stock="roberta")
#: "base" is BERT's and the paper's (table 1); the others are for CPUs.
ROBERTA_ROWS = {
    "base": _Encoder(768, 3072, 12, 12, 0.1),
    "small": _Encoder(256, 1024, 4, 6, 0.1),
    "tiny": _Encoder(128, 512, 4, 4, 0.1),
}
_Decoder = functools.partial(
    Row, normalize_before=True, sides=("decoder",), stock="transformer_lm_gpt"
)
#: fairseq's transformer_lm of the same names, and two for CPUs.
LM_ROWS = {
    "gpt": _Decoder(768, 3072, 12, 12, 0.1),
    "gpt2_small": _Decoder(1024, 4096, 16, 24, 0.1),
    "gpt2_medium": _Decoder(1280, 5120, 20, 36, 0.1),
    "gpt2_big": _Decoder(1600, 6400, 25, 48, 0.1),
    "wiki103": _Decoder(1024, 4096, 8, 16, 0.3, stock="transformer_lm_wiki103"),
    "small": _Decoder(256, 1024, 4, 6, 0.1),
    "tiny": _Decoder(128, 512, 4, 4, 0.1),
}


def sizes(row: str) -> Row:
    """The sizes of a row.

    Raises:
        UserError: there is no row of that name.
    """
    rows = {**ROWS, **SMALL_ROWS}
    if row not in rows:
        raise UserError(f"unknown row {row!r}; choose one of: {', '.join(rows)}")
    return rows[row]


def arch_name(row: str) -> str:
    """The ``--arch`` of a row."""
    return f"{MODEL_NAME}_{row}"


@functools.cache
def option_names(model_name: str, on_command_line: bool = False) -> frozenset[str]:
    """The options of a model of ours: those that it declares, and what its architectures set.

    ``on_command_line``: of fairseq-train only.
    """
    model: Any = MODEL_REGISTRY[model_name]
    parser, filled = argparse.ArgumentParser(), argparse.Namespace()
    model.add_args(parser)
    ARCH_CONFIG_REGISTRY[model_name](filled)
    flags = {action.dest for action in parser._actions}
    if on_command_line:
        return frozenset(flags)
    names = {*vars(filled), *flags, "tokens_per_sample"}
    return frozenset(names | {declared.name for declared in fields(model.CONFIG)})


def _refuse_unknown(row: Row, model_name: str, given: DictConfig) -> None:
    """Refuse options that the model does not have; fairseq's parser does so for command lines.

    Raises:
        ValueError: there are such options.
    """
    if all(name in given for name in row.options()):
        return  # a checkpoint's, which may hold options of the task too
    unknown = sorted(
        {str(name) for name in given} - option_names(model_name) - {"_name", "arch"}
    )
    if unknown:
        raise ValueError(
            f"the model has no option {', '.join(unknown)}: see fairseq-train --help"
        )


def _register(model_name: str, name: str, row: Row) -> None:
    """Register a row of a model as an architecture."""
    model: Any = MODEL_REGISTRY[model_name]

    def configure(args: Any) -> None:
        with one_clear_line(ValueError):
            if isinstance(args, DictConfig):
                _refuse_unknown(row, model_name, args)
            row.fill(args, model.CONFIG)
            bf16_is_not_tpu(args)
            fp16_without_gpu(args)
            model.check(args)

    register_model_architecture(model_name, name)(configure)


_ROWS = {
    transformer.MODEL_NAME: {**ROWS, **SMALL_ROWS},
    roberta.NAME: ROBERTA_ROWS,
    language_model.NAME: LM_ROWS,
}
for _model, _rows in _ROWS.items():
    _register(_model, _model, next(iter(_rows.values())))  # the bare name is the first row
    for _name, _row in _rows.items():
        _register(_model, f"{_model}_{_name}", _row)
