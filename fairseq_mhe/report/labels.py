"""Place names beside the points of a plot, so that they cover neither points nor each other."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from fairseq_mhe.report.looks import look


class Named(Protocol):
    """A point with a name; ``kind`` determines its colour."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


#: Distances of a name from its point, in points, nearest first; farther names get a line.
_DISTANCES = (7, 14, 24, 36, 50)
#: Directions of a name from its point, in degrees, best first.
_DIRECTIONS = (0, 180, 90, 270, 45, 315, 135, 225)


def spread(
    positions: Sequence[float], distance: float, low: float, high: float
) -> list[float]:
    """Return positions from ``low`` to ``high``, in the same order, ``distance`` apart, and near.

    If they do not all fit, they have equal distances.
    """
    distance = min(distance, (high - low) / max(1, len(positions) - 1))
    order = sorted(range(len(positions)), key=lambda n: positions[n])
    placed = list(positions)
    for _ in range(100):
        for lower, upper in itertools.pairwise(order):
            overlap = distance - (placed[upper] - placed[lower])
            if overlap > 0:
                placed[lower] -= overlap / 2
                placed[upper] += overlap / 2
    least = low
    for n in order:
        placed[n] = max(placed[n], least)
        least = placed[n] + distance
    most = high
    for n in reversed(order):
        placed[n] = min(placed[n], most)
        most = placed[n] - distance
    return placed


def name_points(axes: Axes, positions: Sequence[float], points: Sequence[Named]) -> None:
    """Write the name of each point beside it; ``positions``: x of each. The figure is laid out."""
    figure: Any = axes.figure
    renderer = figure.canvas.get_renderer()
    unit = figure.dpi / 72
    centres = []
    taken: list[Bbox] = []
    for x, point in zip(positions, points, strict=True):
        centre = axes.transData.transform((x, point.value))
        low, high = (axes.transData.transform((x, y))[1] for y in (point.low, point.high))
        centres.append(centre)
        marker = 4 * unit
        taken.append(Bbox([centre - marker, centre + marker]))
        taken.append(Bbox.from_extents(centre[0] - unit, low, centre[0] + unit, high))
    inside = axes.get_window_extent(renderer)
    to_axes = (
        axes.transAxes.inverted().transform
    )  # pixels change when the picture is written
    for centre, point in zip(centres, points, strict=True):
        text = axes.text(0, 0, point.name, transform=axes.transAxes, fontsize=9)
        text.set(in_layout=False, va="bottom", color=look(point.kind)["color"])
        size = text.get_window_extent(renderer)
        boxes = []
        for distance, direction in itertools.product(_DISTANCES, _DIRECTIONS):
            boxes.append(_box(centre, size, distance * unit, math.radians(direction)))
        best = min(boxes, key=lambda box: _covered(box, taken) + _outside(box, inside))
        text.set_position(tuple(to_axes((best.x0, best.y0))))
        taken.append(best)
        nearest = (
            min(max(centre[0], best.x0), best.x1),
            min(max(centre[1], best.y0), best.y1),
        )
        if math.dist(centre, nearest) > 10 * unit:
            (x, y), (end_x, end_y) = to_axes(centre), to_axes(nearest)
            style: dict[str, Any] = {
                "color": "#888888",
                "linewidth": 0.6,
                "transform": axes.transAxes,
            }
            axes.plot((x, end_x), (y, end_y), in_layout=False, zorder=1, **style)


def _box(centre: np.ndarray, size: Bbox, distance: float, direction: float) -> Bbox:
    """Return where a text of a size lies, seen from a point in a direction."""
    across, up = math.cos(direction), math.sin(direction)
    x = centre[0] + distance * across + (across - 1) / 2 * size.width
    y = centre[1] + distance * up + (up - 1) / 2 * size.height
    return Bbox.from_bounds(x, y, size.width, size.height)


def _covered(box: Bbox, taken: Sequence[Bbox]) -> float:
    """Return the area of a box that others cover."""
    area = 0.0
    for other in taken:
        common = Bbox.intersection(box, other)
        if common is not None:
            area += common.width * common.height
    return area


def _outside(box: Bbox, inside: Bbox) -> float:
    """Return a cost for a box that leaves the panel."""
    common = Bbox.intersection(box, inside)
    area = box.width * box.height
    return 3 * (area - (common.width * common.height if common is not None else 0.0))
