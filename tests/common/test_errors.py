"""A message is one printable line, whatever characters a name or a word has."""

import os
import subprocess

from hypothesis import example, given
from hypothesis import strategies as st

from fairseq_mhe.common.errors import UserError, one_line
from tests.fixtures.processes import PYTHON


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


def test_a_terminal_without_a_character_gets_another() -> None:
    """Scores have a plus-minus sign, which ASCII lacks."""
    code = "import fairseq_mhe_cli, sys; from fairseq_mhe.common.errors import exit_status\n"
    code += "sys.exit(exit_status('name', lambda: print('21.3 \u00b1 0.4')))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "21.3 \\xb1 0.4\n")
