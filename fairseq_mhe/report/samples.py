"""Sample translations: lines of a data set, their references, and each model's translation."""

from collections.abc import Sequence
from pathlib import Path

from fairseq_mhe.common.errors import one_line
from fairseq_mhe.common.files import write_text
from fairseq_mhe.report.results import Cell, label

_COUNT = 5


def write_samples(cells: Sequence[Cell], folder: Path) -> str:
    """Write samples.md and return it without its heading.

    It has five lines of the data set, evenly spread, with the first seed's translations.
    """
    texts = cells[0].results[0].texts
    total = len(texts["sources"])
    count = min(_COUNT, total)
    blocks = []
    for number in range(count):
        index = number * total // count
        lines = {"source": texts["sources"], "reference": texts["references"]}
        for cell in cells:
            lines[label(cell, cells)] = cell.results[0].texts["hypotheses"]
        block = [f"- line {index + 1}"]
        for name, of_name in lines.items():
            block.append(f"  - {name}: {one_line(of_name[index])}")
        blocks.append("\n".join(block))
    text = "\n".join(blocks) + "\n"
    write_text(folder / "samples.md", f"# Sample translations\n\n{text}")
    return text
