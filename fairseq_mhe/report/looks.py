"""Colour and marker of each kind of attention, the same in every picture."""

from collections.abc import Sequence

#: Okabe and Ito's colours, distinct with every kind of colour vision, then dark yellow and grey.
_BLACK, _BLUE, _RED, _GREEN = "#000000", "#0072B2", "#D55E00", "#009E73"
_PINK, _ORANGE, _SKY = "#CC79A7", "#E69F00", "#56B4E9"
_YELLOW, _GREY = "#8C8C00", "#7F7F7F"
#: Kind -> colour and marker; relatives share a colour. skv-1 is skv with one key head.
LOOKS = {
    "mha": (_BLACK, "o"),
    "mhe_mul": (_RED, "s"),
    "mhe_add": (_RED, "D"),
    "mhe_conv": (_GREEN, "^"),
    "mha_conv": (_GREEN, "v"),
    "mqa_conv": (_GREEN, "<"),
    "mha_dconv": (_GREEN, ">"),
    "sha": (_GREY, "o"),
    "mqa": (_BLUE, "s"),
    "gqa": (_BLUE, "D"),
    "mfa": (_BLUE, "P"),
    "mla": (_SKY, "o"),
    "tpa": (_SKY, "P"),
    "collaborative": (_SKY, "X"),
    "skv": (_PINK, "s"),
    "skv-1": (_PINK, "D"),
    "el": (_YELLOW, "X"),
    "tucker": (_ORANGE, "P"),
}
#: For variants of one kind in one picture.
_MARKERS = "osD^v<>PXph8*d1234"
#: A kind of one's own, or a mixture.
_OTHER = (_GREY, "*")


def look(name: str) -> dict[str, str]:
    """Return the colour and marker of a kind, or of a variant that begins with a kind's name."""
    known = [kind for kind in LOOKS if name == kind or name.startswith(f"{kind}-")]
    colour, marker = LOOKS[max(known, key=len)] if known else _OTHER
    return {"color": colour, "marker": marker}


def distinct_looks(names: Sequence[str]) -> list[dict[str, str]]:
    """Return the look of each name; of equal ones all but the first get another marker.

    If a picture has more variants of one kind than there are markers, the last ones share a look.
    """
    looks: list[dict[str, str]] = []
    for name in names:
        wanted = look(name)
        others = [{**wanted, "marker": marker} for marker in _MARKERS]
        unused = (one for one in (wanted, *others) if one not in looks)
        looks.append(next(unused, wanted))
    return looks
