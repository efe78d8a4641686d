"""The registry refuses names, sizes and options that do not fit, in one clear line."""

import pytest

from fairseq_mhe.attention import KINDS, build_attention

EVERY = tuple(KINDS)
#: Kinds, sizes, options and what the message must name.
REFUSED = [
    (("mhe",), (8, 2), {}, "mhe_mul"),
    (EVERY, (10, 4), {}, "num_heads 4"),
    (EVERY, (8, 0), {}, "num_heads 0"),
    (EVERY, (8, 2), {"head_dim": 0}, "head_dim"),
    (EVERY, (8, 2), {"colour": 1}, "colour"),
    (("mhe_add",), (8, 2), {"head_embedding_std": -1.0}, "head_embedding_std"),
    (("mhe_mul",), (8, 2), {"head_embedding_std": float("nan")}, "head_embedding_std"),
    (("mhe_mul",), (8, 2), {"shared_projection_init": "zero"}, "packed"),
    (("gqa", "skv"), (8, 4), {"kv_heads": 3}, "kv_heads 3"),
    (("el",), (8, 2), {"kdim": 6, "vdim": 6}, "kdim 6"),
    *((("mha",), (8, 2), {"dropout": p}, "dropout") for p in (-0.1, 1.1, float("nan"))),
]


@pytest.mark.parametrize(("kinds", "sizes", "options", "message"), REFUSED)
def test_bad_sizes_and_options_are_refused(
    kinds: tuple[str, ...], sizes: tuple[int, int], options: dict, message: str
) -> None:
    for kind in kinds:
        with pytest.raises(ValueError, match=message):
            build_attention(kind, *sizes, **options)
