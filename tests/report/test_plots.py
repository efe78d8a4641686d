"""The Pareto front of the picture, against its definition."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from fairseq_mhe.report.plots import pareto_front

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1)


@given(POINTS)
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    def beaten(point: tuple[int, int]) -> bool:
        return any(o != point and o[0] <= point[0] and o[1] >= point[1] for o in points)

    assert pareto_front(points) == sorted({point for point in points if not beaten(point)})
