"""``fairseq-mhe params``: the parameters of every row of the paper's table, counted in models that are really built."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import build_model
from rich.console import Console
from rich.table import Table
from torch import nn

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.errors import UserError
from fairseq_mhe.models.accounting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS, arch_name

#: #Params in the paper's table (Xue & Aletras 2023), millions.
PUBLISHED = {
    "base": {"mha": "18.87", "mhe_mul": "6.52"},
    "16x32": {"mha": "18.87", "mhe_mul": "5.63"},
    "4x128": {"mha": "18.87", "mhe_mul": "8.29"},
    "4l": {"mha": "12.58", "mhe_mul": "4.34"},
    "8l": {"mha": "25.17", "mhe_mul": "8.69"},
    "12h": {"mha": "42.47", "mhe_mul": "13.31"},
    "big": {"mha": "75.50", "mhe_mul": "22.47"},
}


def build_on_meta(row: str, attention: str, vocabulary: int = 32768, **options: Any) -> nn.Module:
    """The model of a row and kind with parameters of the right shapes and no memory behind them.

    Raises:
        UserError: no such row.
    """
    if row not in {**ROWS, **SMALL_ROWS}:
        raise UserError(f"unknown row {row!r}; choose one of: {', '.join({**ROWS, **SMALL_ROWS})}")
    dictionary = Dictionary()
    for index in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    args = argparse.Namespace(arch=arch_name(row), attention=attention, share_all_embeddings=True, **options)
    with torch.device("meta"):
        return build_model(args, task)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe params``."""
    parser.add_argument("--json", action="store_true", help="print attention parameters as JSON, for programs")
    parser.add_argument("--vocab-size", type=int, default=32768, help="joined vocabulary (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Print the table, or its attention parameters as JSON."""
    if args.json:
        counts = {row: {k: attention_parameters(build_on_meta(row, k)) for k in VARIANTS} for row in ROWS}
        print(json.dumps(counts, indent=2))
    else:
        Console().print(_table(args.vocab_size))


def _table(vocabulary: int) -> Table:
    table = Table(
        title=f"Attention without biases; totals with a joined vocabulary of {vocabulary:,}; cache in float32"
    )
    table.add_column("row")
    table.add_column("attention")
    for name in ("attention parameters", "published (M)", "total parameters", "KV bytes/target token", "/source token"):
        table.add_column(name, justify="right")
    for row in ROWS:
        for kind in VARIANTS:
            model = build_on_meta(row, kind, vocabulary)
            cache = cache_bytes(model)
            table.add_row(
                row,
                kind,
                f"{attention_parameters(model):,}",
                PUBLISHED[row].get(kind, ""),
                f"{total_parameters(model):,}",
                f"{cache.per_target_token:,}",
                f"{cache.per_source_token:,}",
            )
        table.add_section()
    return table
