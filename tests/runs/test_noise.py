"""Known start-up noise stays off the screen; every other warning reaches it."""

import subprocess
import sys

from fairseq_mhe.runs.noise import real_warnings

# What fairseq-train 0.12.3 really printed with hydra 1.3 and torch 2.13, between its INFO lines.
START_UP = """\
/env/torch/jit/_script.py:1488: DeprecationWarning: `torch.jit.script` is deprecated. Please switch to `torch.compile`.
  warnings.warn(
/env/hydra/experimental/initialize.py:43: UserWarning: hydra.experimental.initialize() is no longer experimental. Use
  deprecation_warning(message=message)
/env/hydra/experimental/initialize.py:45: Hydra14MigrationWarning: 
The version_base parameter is not specified.
Hydra will assume defaults for version 1.1.
/env/hydra/experimental/compose.py:25: UserWarning: hydra.experimental.compose() is no longer experimental.
/env/hydra/core/default_element.py:124: UserWarning: In 'config': Usage of deprecated keyword in package header '# @p'.
<frozen runpy>:88: UserWarning: 
'config' is validated against ConfigStore schema with the same name.
/env/hydra/compose.py:56: UserWarning: 
The strict flag in the compose API is deprecated.
2026-11-21 03:58:44 | INFO | fairseq.trainer | Saving checkpoint to /runs/my: Warning: folder/checkpoint_1_15.pt
/env/torch/utils/data/dataloader.py:759: UserWarning: 'pin_memory' argument is set as true but no accelerator is found
/env/fairseq/tasks/fairseq_task.py:531: FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use
  with torch.cuda.amp.autocast(enabled=(isinstance(optimizer, AMPOptimizer))):
"""  # noqa: W291 - as printed


def test_start_up_noise_is_no_real_warning() -> None:
    assert list(real_warnings(START_UP.split("\n"))) == []


def test_real_warnings_pass() -> None:
    lines = [
        *START_UP.split("\n"),
        "/env/torch/optim/lr_scheduler.py:12: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer`.",
        "2026-11-21 03:58:44 | WARNING | fairseq.tasks.fairseq_task | 3 samples have invalid sizes and will be skipped",
        "/env/numpy/core.py:1: RuntimeWarning: ",
        "overflow encountered in multiply",
    ]
    assert list(real_warnings(lines)) == [
        "Detected call of `lr_scheduler.step()` before `optimizer`.",
        "3 samples have invalid sizes and will be skipped",
        "overflow encountered in multiply",
    ]


def test_what_fairseq_really_prints_when_it_starts_is_all_known() -> None:
    """Red when a new version of a library prints something new: add it to NOISE, or show it to users."""
    done = subprocess.run(
        [sys.executable, "-m", "fairseq_cli.train", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(real_warnings(done.stderr.split("\n"))) == []
