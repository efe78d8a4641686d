"""Draw docs/house.svg and docs/sublayer.svg: python docs/figures.py"""

from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

mpl.rcParams.update({"svg.hashsalt": "fairseq-mhe", "svg.fonttype": "none", "font.size": 10})

HERE = Path(__file__).parent
#: A room imports only from the rows below its own, or further left in its row.
HOUSE = [
    ["common"],
    ["attention"],
    ["models", "prepare"],
    ["checkpoints", "convert"],
    ["runs"],
    ["report"],
    ["experiments", "bench", "deploy"],
    ["scripts", "data-prep"],
]
PLAIN, SHARED, CACHED = "#f2f2f2", "#d8e6f3", "#fbe3c8"


def box(axes: Axes, x: float, y: float, width: float, text: str, colour: str = PLAIN) -> None:
    """A rounded box around (x, y) with a text in it."""
    style = "round,pad=0.02,rounding_size=0.08"
    corner = (x - width / 2, y - 0.22)
    axes.add_patch(
        FancyBboxPatch(corner, width, 0.44, style, facecolor=colour, edgecolor="#444")
    )
    axes.text(x, y, text, ha="center", va="center")


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow from one box to another."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#444", "lw": 1})


def canvas(width: float, height: float) -> Axes:
    """Empty axes of width x height inches, an inch a unit."""
    axes = Figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return axes


def save(axes: Axes, name: str) -> None:
    """Write docs/NAME.svg, the same bytes each time."""
    axes.get_figure().savefig(HERE / f"{name}.svg", metadata={"Date": None})


def house() -> None:
    """The rooms of the package, each row above what it imports."""
    axes = canvas(6, 0.7 * len(HOUSE) + 0.1)
    for level, rooms in enumerate(HOUSE):
        for index, room in enumerate(rooms):
            box(axes, 3 + 1.9 * (index - (len(rooms) - 1) / 2), 0.4 + 0.7 * level, 1.5, room)
        if level:
            arrow(axes, (3, 0.7 * level + 0.16), (3, 0.7 * level - 0.06))
    save(axes, "house")


def sublayer(
    axes: Axes, left: float, kind: str, inputs: list[tuple[str, str]], heads: str
) -> None:
    """One attention sublayer: queries, keys and values side by side, then heads and output."""
    axes.text(left + 2, 4.62, kind, ha="center", weight="bold")
    for index, (projection, factor) in enumerate(inputs):
        x, is_cached = left + 0.6 + 1.4 * index, index > 0
        box(axes, x, 0.4, 0.8, "X" if index == 0 else "Y")
        box(axes, x, 1.2, 1.2, projection, SHARED if factor else PLAIN)
        if is_cached:
            box(axes, x, 2.0, 1.2, "n heads" if not factor else "1 head", CACHED)
        if factor:
            box(axes, x, 2.8, 1.2, factor)
        steps = [0.4, 1.2, *([2.0] if is_cached else []), *([2.8] if factor else []), 3.5]
        for start, end in pairwise(steps):
            arrow(axes, (x, start + 0.24), (x, end - 0.24))
    box(axes, left + 2, 3.5, 3.9, heads)
    arrow(axes, (left + 2, 3.74), (left + 2, 3.96))
    box(axes, left + 2, 4.2 - 0.02, 1.2, "W_O")


def sublayers() -> None:
    """mha beside mhe_mul: what is projected, what is cached."""
    axes = canvas(9, 5.2)
    mha = [("W_Q: n heads", ""), ("W_K: n heads", ""), ("W_V: n heads", "")]
    mul = [
        ("W_Q: 1 head", "times (1 + e_Q)"),
        ("W_K: 1 head", "times (1 + e_K)"),
        ("W_V: 1 head", "times (1 + e_V)"),
    ]
    sublayer(axes, 0.2, "mha: 2·n·d cached numbers", mha, "softmax(Q Kᵀ / √d) V, n heads")
    sublayer(axes, 4.8, "mhe_mul: 2·d cached numbers", mul, "softmax(Q Kᵀ / √d) V, n heads")
    axes.text(4.5, 5.0, "blue: shared by all heads; orange: cached in decoding", ha="center")
    save(axes, "sublayer")


if __name__ == "__main__":
    house()
    sublayers()
