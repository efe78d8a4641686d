"""fairseq-train with attention options that cannot work: one clear line at start-up, before any
data is read.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq import options

import fairseq_mhe
from tests.fixtures.processes import fairseq

#: A data folder that is not there: whoever looked for it would fail in another way.
NO_DATA = "/no such folder/bin"

BAD = [
    ("--attention gqa --attention-kv-heads 3", "kv_heads 3 does not divide num_heads 8"),
    ("--cross-attention gqa --attention-kv-heads -2", "kv_heads must be positive, not -2"),
    ("--attention collaborative --collaborative-dim 0", "collaborative_dim must be positive"),
    (
        "--attention mha --decoder-attention skv --collaborative-dim 8",
        "--collaborative-dim has no effect on --attention mha/skv: leave it out, or choose one of: "
        "collaborative",
    ),
    (
        "--cross-attention el --encoder-embed-dim 256",
        "num_heads 8 x head_dim 64 = 512 must equal",
    ),
    (
        "--attention mhe",
        "unknown attention 'mhe'; choose one of: mha, mhe_mul, mhe_add, sha, mqa",
    ),
    ("--attention skv --encoder-attention-heads 7", "embed_dim 512 is not divisible by"),
    ("--attention mqa --attention-head-dim 0", "head_dim must be positive, not 0"),
]
GOOD = [
    "--attention gqa --attention-kv-heads 8",
    "--attention gqa --attention-kv-heads 1",
    "--attention mha --cross-attention gqa --attention-kv-heads 4",
    "--attention collaborative --collaborative-dim 1",
    "--attention el --encoder-embed-dim 256 --cross-attention skv",
]


def parse(words: str) -> None:
    """What fairseq-train does before it touches data: its own parser, with the architecture's
    defaults.
    """
    parser = options.get_training_parser()
    arguments = [NO_DATA, "--arch", "transformer_mhe_base", *words.split()]
    options.parse_args_and_arch(parser, input_args=arguments)


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_options_stop_the_parser_in_one_line(words: str, message: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(words)
    assert str(caught.value).startswith("fairseq-mhe: error: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", GOOD)
def test_options_at_their_limits_are_accepted(words: str) -> None:
    parse(words)


def test_fairseq_train_itself() -> None:
    """The real command: one line, a failing exit status, nothing about the data, no traceback."""
    words, message = BAD[0]
    user_dir = str(Path(fairseq_mhe.__file__).parent)
    line = ["--user-dir", user_dir, "--arch", "transformer_mhe_base", *words.split()]
    done = fairseq("train", NO_DATA, *line)
    assert done.returncode != 0
    assert done.stderr.strip().startswith(f"fairseq-mhe: error: {message}")
    assert done.stderr.count("\n") == 1
    assert NO_DATA not in done.stdout
