"""``fairseq-mhe params``: parameters and cache of all rows and kinds, without importing fairseq."""

from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq_mhe.attention import KINDS, build_attention
from fairseq_mhe.models.architectures import ROBERTA_ROWS, ROWS, SMALL_ROWS
from fairseq_mhe.models.meta import without_memory
from fairseq_mhe.report.published import BERT_BASE, published
from fairseq_mhe.report.table import Block, Table, columns

#: The paper's: of translation, and of pre-trained language models, which have an encoder alone.
_SIZES = {**ROWS, **SMALL_ROWS, "bert-base": ROBERTA_ROWS["base"]}


def add_arguments(parser: ArgumentParser) -> None:
    """``fairseq-mhe params`` has no options."""


def run(args: Namespace) -> None:
    """Print the table."""
    rows = [_row(row, kind) for row in _SIZES for kind in KINDS]
    notes = ["cache in float32; all of a model: fairseq-mhe cost"]
    table = Table("Attention without biases", [Block(columns("params"), rows)], notes)
    print(table.markdown(), end="")


def _row(row: str, kind: str) -> dict[str, Any]:
    """Parameters of a row's attention, and bytes of cache: self-attention has as many as cross."""
    size, paper = _SIZES[row], published(row, kind)["paper_parameters"]
    try:
        with without_memory():
            sublayer = build_attention(kind, size.embed_dim, size.heads)
    except ValueError:  # a kind of the user's own that is not for these sizes
        return {"row": row, "attention": kind}
    parameters = size.layers * sum(weight.numel() for weight in sublayer.parameters())
    line = {"row": row, "attention": kind, "published": paper, "parameters": parameters}
    if row == "bert-base":
        return {**line, "published": BERT_BASE.get(kind)}
    cache = 4 * size.layers * sublayer.cached_values
    return {**line, "parameters": 3 * parameters, "cache": cache}
