"""``fairseq-mhe cost`` without arguments: attention parameters and cache of all rows and kinds."""

from typing import Any

import torch

from fairseq_mhe.attention import KINDS, build_attention
from fairseq_mhe.models.architectures import ROBERTA_ROWS, ROWS
from fairseq_mhe.models.outline import give_memory
from fairseq_mhe.report import columns
from fairseq_mhe.report.published import BERT_BASE, published
from fairseq_mhe.report.table import Block, Table

#: Row -> sizes: translation models, and the paper's language models, which have only an encoder.
_SIZES = {**ROWS, "bert-base": ROBERTA_ROWS["base"]}


def all_counts() -> list[dict[str, Any]]:
    """Return the counts of every row with every kind."""
    return [_counts(row, kind) for row in _SIZES for kind in KINDS]


def table_of(counts: list[dict[str, Any]]) -> str:
    """Return `all_counts` as a Markdown table, beside the numbers that the paper prints."""
    notes = ["cache in float32; the cost of a whole model: fairseq-mhe cost ROW KIND"]
    table = Table("Attention without biases", [Block(columns.ALL_KINDS, counts)], notes)
    return table.markdown().rstrip()


def _counts(row: str, kind: str) -> dict[str, Any]:
    """Count attention parameters, of which all three places have equally many, and cache bytes."""
    size = _SIZES[row]
    paper = published(row, kind)["paper_parameters"]
    line = {"row": row, "attention": kind, "published": paper}
    try:
        with torch.device("meta"):
            sublayer = build_attention(kind, size.embed_dim, size.heads)
    except ValueError:  # a user's own kind may not allow these sizes
        return line
    give_memory(sublayer)
    parameters = size.layers * sum(weight.numel() for weight in sublayer.parameters())
    if row == "bert-base":
        return {**line, "published": BERT_BASE.get(kind), "parameters": parameters}
    cache = 4 * size.layers * sublayer.cached_values  # a float32 number has 4 bytes
    return {**line, "parameters": 3 * parameters, "cache": cache}
