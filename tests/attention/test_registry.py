"""The registry refuses names, sizes and options that do not fit, in one clear line."""

import pytest

from fairseq_mhe.attention import KINDS, build_attention

EVERY = tuple(KINDS)
#: Kinds, sizes, options and the error message.
REFUSED = [
    (("mhe",), (8, 2), {}, r"unknown .*'mhe'.*mha, mhe_mul, mhe_add.* --user-dir"),
    (EVERY, (10, 4), {}, "embed_dim 10 is not divisible by num_heads 4"),
    (EVERY, (8, 0), {}, "num_heads 0 must both be positive"),
    (EVERY, (8, 2), {"head_dim": 0}, "head_dim must be 1 or more, but is 0"),
    (EVERY, (8, 2), {"colour": 1}, "does not use colour"),
    (("mhe_add",), (8, 2), {"head_embedding_std": -1.0}, "must be 0 or more, but is -1"),
    (("mhe_mul",), (8, 2), {"head_embedding_std": float("nan")}, "must be 0 or more, but is nan"),
    (("mhe_mul",), (8, 2), {"shared_projection_init": "zero"}, "'zero'; choose one of: packed"),
    (("gqa",), (8, 4), {"kv_heads": 3}, "kv_heads 3 does not divide num_heads 4"),
    (("el",), (8, 2), {"kdim": 6, "vdim": 6}, "x head_dim 4 = 8 must equal kdim 6"),
    (("mha",), (8, 2), {"dropout": -0.1}, "dropout must be from 0 to 1, not -0.1"),
    (("mha",), (8, 2), {"dropout": 1.1}, "dropout must be from 0 to 1, not 1.1"),
    (("mha",), (8, 2), {"dropout": float("nan")}, "dropout must be from 0 to 1, not nan"),
]


@pytest.mark.parametrize(("kinds", "sizes", "options", "message"), REFUSED)
def test_bad_sizes_and_options_are_refused(
    kinds: tuple[str, ...], sizes: tuple[int, int], options: dict, message: str
) -> None:
    for kind in kinds:
        with pytest.raises(ValueError, match=message):
            build_attention(kind, *sizes, **options)
