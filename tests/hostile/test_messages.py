"""An error is one printable line that is true, whatever characters a name or a word has."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_mhe import cli
from fairseq_mhe.common.checkpoint_files import read_checkpoint
from fairseq_mhe.common.errors import UserError, one_line


@given(st.text(st.characters(exclude_categories=())))
@example("two\nlines")
@example("cut\r\n\r\n  off\u2028again\x85and\x0bagain")
@example("\x1b[31mred\x1b[0m\a \x9b2J")
@example("right\u202etfel")
@example("a byte: \udcff")
def test_a_message_is_one_printable_line(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line.splitlines() in ([line], [])
    assert line == str(UserError(text))


@pytest.mark.parametrize("problem", ["/dev/zero is not a file", "/nowhere does not exist"])
def test_only_a_missing_path_is_called_missing(problem: str) -> None:
    with pytest.raises(UserError, match=f"{problem}: give the path of a fairseq checkpoint"):
        read_checkpoint(Path(problem.split()[0]))


def _parser(name: str) -> argparse.ArgumentParser:
    subparsers = cli.build_parser(name)._subparsers._group_actions
    return subparsers[0].choices[name]


@pytest.mark.parametrize("name", cli.SUBCOMMANDS)
def test_no_error_names_a_private_function(name: str) -> None:
    """argparse writes "invalid _count value" if a converter raises ValueError."""
    messages, parser = [], _parser(name)
    for action in parser._actions:
        for word in ("x", "", "-", "nan", "1e400", "9" * 5000, "\udcff"):
            if action.nargs != 0 and not action.choices:
                try:
                    parser._get_values(action, [word])
                except argparse.ArgumentError as error:
                    messages.append(str(error.message))
    assert not [message for message in messages if message.startswith("invalid _")]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        line = [sys.executable, "-m", "fairseq_mhe_cli", "recipe", "tiny"]
        env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, check=False, env=env)
    assert done.returncode == 2
    message = b"fairseq-mhe recipe: error: standard output: No space left on device\n"
    assert done.stderr == message
