"""The sizes that a kind of attention takes for a budget of parameters: heads and their width."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairseq_mhe.models.architectures import sizes
from fairseq_mhe.models.build import without_memory
from fairseq_mhe.models.counting import total_parameters
from fairseq_mhe.models.options import PLACES, build_place
from fairseq_mhe.runs.run import kind_name
from studies.trainings import everywhere

#: Options without which a kind at another size would be another kind: gqa with one group is mqa.
FIXED = {"gqa": {"attention_kv_heads": 2}}


@dataclass(frozen=True)
class Size:
    """``heads`` of ``width`` everywhere, and the attention ``parameters`` of a model of the row.

    ``attention``: the kind at each place.
    """

    attention: Mapping[str, str]
    heads: int
    width: int
    parameters: int

    @property
    def name(self) -> str:
        """Such as mqa-4x22."""
        return f"{kind_name(self.attention)}-{self.heads}x{self.width}"

    def off(self, budget: int) -> float:
        """How far it is from a budget, as a share of that."""
        return self.parameters / budget - 1

    def options(self) -> tuple[str, ...]:
        """fairseq-train's words for it."""
        words = ["--encoder-attention-heads", str(self.heads)]
        words += ["--decoder-attention-heads", str(self.heads)]
        words += ["--attention-head-dim", str(self.width)]
        for name, value in _fixed(self.attention).items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return tuple(words)


def _fixed(attention: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind in attention.values():
        found |= FIXED.get(kind, {})
    return found


def by_option(attention: Mapping[str, str]) -> dict[str, Any]:
    """A model's options for the kind at each place."""
    return {option: attention[place] for place, option in PLACES.items()}


def of_row(row: str, kind: str) -> Size:
    """A kind with the row's own heads."""
    size = sizes(row)
    return _sized(row, everywhere(kind), size.heads, size.embed_dim // size.heads)


def fitting(
    row: str, attention: Mapping[str, str], budget: int, within: float
) -> tuple[list[Size], Size | None]:
    """The sizes of kinds that come ``within`` a share of the budget, and the nearest otherwise.

    There are at most three: with the row's number of heads, and with half of it, or the nearest
    numbers of heads with which a whole width comes so close; and as many heads of the row's width.
    """
    size = sizes(row)
    most = 2 * size.heads
    found: dict[str, Size] = {}
    tried: list[Size] = []

    def first(candidates: Iterable[Size | None]) -> None:
        """Take the first that comes close enough."""
        for near in filter(None, candidates):
            tried.append(near)
            if abs(near.off(budget)) <= within:
                found[near.name] = near
                return

    for wanted in dict.fromkeys((size.heads, max(1, size.heads // 2))):
        first(_closest(row, attention, heads, budget) for heads in _nearest(wanted, most))
    width = size.embed_dim // size.heads
    first(_built(row, attention, heads, width) for heads in _nearest(size.heads, most))
    nearest = min(tried, key=lambda near: abs(near.off(budget)), default=None)
    return list(found.values()), None if found else nearest


def _nearest(wanted: int, most: int) -> Iterator[int]:
    """Whole numbers from 1 to ``most``, those nearest to ``wanted`` first."""
    yield from sorted(range(1, most + 1), key=lambda number: (abs(number - wanted), number))


def _closest(row: str, attention: Mapping[str, str], heads: int, budget: int) -> Size | None:
    """The width that is nearest to the budget; the only one of a kind whose width is not free."""
    least = _built(row, attention, heads, 1)
    if least is None:
        return _built(row, attention, heads, sizes(row).embed_dim // heads)
    low = high = least
    while high.parameters < budget:
        low, high = high, _sized(row, attention, heads, 2 * high.width)
    while high.width - low.width > 1:
        middle = _sized(row, attention, heads, (low.width + high.width) // 2)
        low, high = (middle, high) if middle.parameters < budget else (low, middle)
    return min((low, high), key=lambda size: abs(size.off(budget)))


def _built(row: str, attention: Mapping[str, str], heads: int, width: int) -> Size | None:
    """None where a kind cannot be of that size."""
    try:
        return _sized(row, attention, heads, width)
    except ValueError:
        return None


def _sized(row: str, attention: Mapping[str, str], heads: int, width: int) -> Size:
    size = sizes(row)
    given = {**by_option(attention), "attention_head_dim": width, **_fixed(attention)}
    sides = {f"{side}_attention_heads": heads for side in ("encoder", "decoder")}
    args = Namespace(**{**size.options(), **given, **sides})
    with without_memory():
        each = sum(total_parameters(build_place(args, place)) for place in PLACES)
    return Size(attention, heads, width, size.layers * each)
