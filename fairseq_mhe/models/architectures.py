"""The rows of the paper's translation table (Xue & Aletras 2023) and smaller: ``--arch``."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from fairseq.models import ARCH_CONFIG_REGISTRY, register_model_architecture

from fairseq_mhe.common.errors import UserError, one_clear_line
from fairseq_mhe.fairseq_fixes import bf16_is_not_tpu, fp16_without_gpu
from fairseq_mhe.models import transformer  # noqa: F401 - registers the model that these are of
from fairseq_mhe.models.options import MODEL_NAME, check_options


@dataclass(frozen=True)
class Row:
    """One size of Transformer; ``layers`` counts each of its ``sides``."""

    embed_dim: int
    ffn_embed_dim: int
    heads: int
    layers: int
    dropout: float
    normalize_before: bool = False
    sides: tuple[str, ...] = ("encoder", "decoder")

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

    def give(self, args: argparse.Namespace) -> None:
        """Set the options that ``args`` does not have."""
        for name, value in self.options().items():
            if not hasattr(args, name):
                setattr(args, name, value)


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


def _architecture(row: Row) -> Callable[[argparse.Namespace], None]:
    def configure(args: argparse.Namespace) -> None:
        row.give(args)
        bf16_is_not_tpu(args)
        fp16_without_gpu(args)
        with one_clear_line(ValueError):
            _set_outer_widths(args)
            check_options(args)

    return configure


def _set_outer_widths(args: argparse.Namespace) -> None:
    """The decoder's outer widths follow its own unless said otherwise."""
    for name in ("decoder_input_dim", "decoder_output_dim"):
        given = getattr(args, name, args.decoder_embed_dim)
        if isinstance(given, str) and not given.startswith("${"):  # fairseq's parser leaves words
            if not given.isdecimal():
                raise ValueError(f"--{name.replace('_', '-')} {given!r} is no whole number")
            given = int(given)
        setattr(args, name, given)


# The bare model name is the base row; fairseq registered it with a function that does nothing.
ARCH_CONFIG_REGISTRY[MODEL_NAME] = _architecture(ROWS["base"])
for _name, _row in {**ROWS, **SMALL_ROWS}.items():
    register_model_architecture(MODEL_NAME, arch_name(_name))(_architecture(_row))
