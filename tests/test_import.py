"""Importing the package registers its parts, and changes nothing else in the process."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fairseq_mhe
from tests.fixtures.processes import python

USER_DIR = str(Path(fairseq_mhe.__file__).parent)
#: A program with fairseq, a logging of its own and no sys.argv.
PROGRAM = """
import json, logging, os, sys, warnings
import fairseq.criterions, fairseq.optim, fairseq.trainer, numpy
logging.basicConfig(level=logging.DEBUG)
logging.root.handlers.append(logging.NullHandler())
del sys.argv

def surroundings():
    root, trainer = logging.root, logging.getLogger("fairseq.trainer")
    log = root.level, [*root.handlers], root.manager.disable, [*trainer.filters]
    return log, [*warnings.filters], dict(os.environ), sys.excepthook, "compat" in vars(numpy)

def functions():
    found = {}
    for name, module in [*sys.modules.items()]:
        if name.startswith("fairseq."):
            for key, value in vars(module).items():
                found[f"{name}.{key}"] = value
                if isinstance(value, type):
                    found |= {f"{name}.{key}.{part}": of for part, of in vars(value).items()}
    return {name: value for name, value in found.items() if callable(value)}

before, old = surroundings(), functions()
"""
REPORT = """
new = functions()
changed = {name.rpartition(".")[2] for name in old if new.get(name) is not old[name]}
evals = [name for name, module in sys.modules.items()
    if name.startswith("fairseq.") and "eval" in vars(module)]
print(json.dumps([surroundings() == before, sorted(changed), evals]))
"""


def changes(code: str) -> Any:
    """Return whether the surroundings stay, fairseq's changed functions, and modules' own eval."""
    done = python(f"{PROGRAM}{code}{REPORT}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SAFE = ["load_archive_file", "load_checkpoint_to_cpu", "load_model_ensemble_and_task"]


def test_an_import_changes_the_loading_of_checkpoints_alone() -> None:
    assert changes("import fairseq_mhe") == [True, SAFE, []]


def test_a_program_gets_the_fixes_if_it_asks() -> None:
    same, changed, evals = changes("import fairseq_mhe; fairseq_mhe.fix_fairseq()")
    assert {*SAFE, "batch_by_size", "save_checkpoint", "state_dict"} < {*changed}
    assert "fairseq.utils" in evals
    assert not same, "NumPy's compat is there"


def in_command(code: str) -> subprocess.CompletedProcess[str]:
    """Run code after the import of the user-dir by a command of fairseq."""
    start = "import fairseq_cli, fairseq.utils; from argparse import Namespace; "
    load = f"fairseq.utils.import_user_module(Namespace(user_dir={USER_DIR!r}))"
    return python(f"{start}{code.replace('LOAD', load)}")


def test_a_command_of_fairseq_gets_the_fixes_by_its_user_dir() -> None:
    shown = "print(hasattr(fairseq.data.data_utils.batch_by_size, '__wrapped__'))"
    assert in_command(f"LOAD; {shown}").stdout == "True\n"


@pytest.mark.parametrize("after", ["", "raise Exception('fairseq hides the cause')"])
def test_a_user_error_ends_a_command_of_fairseq_in_one_line(after: str) -> None:
    error = "raise fairseq_mhe.UserError('two\\nlines')"
    code = f"LOAD\nimport fairseq_mhe\ntry: {error}\nexcept ValueError: {after or 'raise'}"
    done = in_command(code)
    assert (done.returncode, done.stderr) == (1, "fairseq-mhe: error: two lines\n")


def test_a_program_can_catch_what_a_library_call_raises() -> None:
    with pytest.raises(ValueError, match="does not exist"):
        fairseq_mhe.Translator.load("/nowhere")


def test_another_version_of_fairseq_is_refused_in_one_line() -> None:
    done = in_command("fairseq.__version__ = '0.13.2'; LOAD")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "fairseq 0.13.2" in done.stderr
