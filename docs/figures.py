"""Draw docs/house.svg and docs/sublayer.svg: python docs/figures.py"""

from itertools import pairwise
from pathlib import Path

#: From top to bottom: a room imports only from the rows below its own.
HOUSE = (
    *("scripts data-prep", "experiments bench deploy", "report", "runs convert"),
    *("checkpoints", "models prepare", "attention", "common"),
)
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}">
<style>
rect {{ fill: #f2f2f2; stroke: #444 }}
text {{ font: 14px sans-serif; text-anchor: middle; dominant-baseline: middle }}
line {{ stroke: #444; marker-end: url(#tip) }}
.shared {{ fill: #d8e6f3 }}
.cached {{ fill: #fbe3c8 }}
</style>
<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
<path d="M0,0 L8,4 L0,8 z" fill="#444"/>
</marker>
"""


def text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{words}</text>\n'


def box(x: float, y: float, words: str, colour: str = "", width: int = 120) -> str:
    """A box of height 32 around a point, with words in it."""
    place = f'x="{x - width / 2:g}" y="{y - 16:g}" width="{width}" height="32"'
    return f'<rect {place} rx="6" class="{colour}"/>{text(x, y, words)}'


def arrow(x: float, start: float, end: float) -> str:
    """An arrow from a box upwards or downwards to another, by the heights of their middles."""
    gap = 17 if start > end else -17
    return f'<line x1="{x:g}" y1="{start - gap:g}" x2="{x:g}" y2="{end + gap:g}"/>\n'


def sublayer(left: int, title: str, heads: str, is_shared: bool) -> str:
    """One attention sublayer: what becomes queries, keys and values, then heads and output."""
    middle, softmax = left + 200, 116
    parts = [text(middle, 34, title), box(middle, 62, "W_O"), arrow(middle, softmax, 62)]
    parts.append(box(middle, softmax, "softmax(Q Kᵀ / √d) V, n heads", width=380))
    for index, name in enumerate("QKV"):
        x, weight = left + 65 + 135 * index, (f"W_{name}: {heads}", "shared" if is_shared else "")
        column = {380: ("X" if name == "Q" else "Y", ""), 314: weight}
        if name != "Q":
            column[248] = (heads, "cached")
        if is_shared:
            column[182] = (f"times (1 + e_{name})", "")
        parts += [box(x, y, *words) for y, words in column.items()]
        parts += [arrow(x, a, b) for a, b in pairwise([*column, softmax])]
    return "".join(parts)


def draw(name: str, width: int, height: int, *parts: str) -> None:
    content = "".join([HEAD.format(width, height), *parts, "</svg>\n"])
    Path(__file__).with_name(f"{name}.svg").write_text(content, encoding="utf-8")


if __name__ == "__main__":
    house = []
    for level, rooms in enumerate(map(str.split, HOUSE)):
        y = 28 + 52 * level
        for index, room in enumerate(rooms):
            house.append(box(230 + 140 * (index - (len(rooms) - 1) / 2), y, room))
        house += [arrow(230, y - 52, y)] if level else []
    draw("house", 460, 420, *house)
    caption = text(410, 12, "blue: shared by all heads; orange: cached in decoding")
    mha = sublayer(0, "mha: 2·n·d cached numbers", "n heads", is_shared=False)
    mul = sublayer(420, "mhe_mul: 2·d cached numbers", "1 head", is_shared=True)
    draw("sublayer", 820, 400, caption, mha, mul)
