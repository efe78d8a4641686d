"""Every script has help without an installation, and passes all words to its command."""

from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.bench.run import BENCHMARKS
from fairseq_mhe.common.arguments import from_options
from tests.scripts.conftest import REPOSITORY, Sandbox

SCRIPTS = sorted(
    str(path.relative_to(REPOSITORY))
    for room in ("scripts", "data-prep")
    for path in (REPOSITORY / room).glob("*.sh")
    if path.name not in ("environment.sh", "start.sh")
)
#: Scripts whose command has another name.
COMMANDS = {"run-nlu-table": "nlu-table", "benchmark": "bench"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_works_without_an_installation(sandbox: Sandbox, script: str) -> None:
    """With an unsuitable Python it is the script's own part; else the command's help follows."""
    assert (REPOSITORY / script).stat().st_mode & 0o111, "it can be started"
    old = str(sandbox.python("python3", "3.10"))
    done = sandbox.run("--help", script=script, PYTHON=old)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: bash {sandbox.repository / script} [--venv DIR]")
    about = (REPOSITORY / script).read_text().split("\n")[1].removeprefix("# ")
    assert f"\n{about}\n" in done.stdout
    mine = str(sandbox.python("python3", "3.12"))
    installed = sandbox.run("--help", "two words", script=script, PYTHON=mine, NOT_INSTALLED="0")
    assert (installed.returncode, sandbox.installs()) == (0, 0)
    has_command = "All other options go to the command." in done.stdout
    assert has_command == (script != "scripts/gpu_check.sh")
    words = installed.stdout.removeprefix(done.stdout).splitlines()
    if not has_command:
        assert words == []
        return
    assert words[:3] == ["ran", "-P", "-m"]
    assert "--help" in words
    name = script.removeprefix("scripts/").removesuffix(".sh").replace("_", "-")
    command = COMMANDS.get(name, name)
    if command in cli.SUBCOMMANDS:
        assert words[3:] == ["fairseq_mhe_cli", command, "--help", "two words"]
    else:
        assert name in ("study", "test") or "data-prep" in name


@pytest.mark.parametrize(("device", "left_out"), [("cuda", 1), ("cpu", 0)])
def test_gpu_check_runs_all_its_parts(sandbox: Sandbox, device: str, left_out: int) -> None:
    """``left_out``: CTranslate2, which cannot run on a GPU without cuBLAS 12."""
    sandbox.python("python3", "3.12")
    words = ["--out", "an out", *["--cpu"][: device == "cpu"]]
    variables = {"NOT_INSTALLED": "0", "NO_CUBLAS": str(left_out)}
    done = sandbox.run(*words, script="scripts/gpu_check.sh", **variables)
    assert done.returncode == left_out, done.stderr
    prepare, tests, *calls = (c.splitlines() for c in done.stdout.split("ran\n-P\n-m\n")[1:])
    assert tests[0] == "pytest"
    for named in tests[2:]:
        path, _, function = named.partition("::")
        file = REPOSITORY / Path(path).relative_to(sandbox.repository)
        assert f"def {function}" in file.read_text()
    parsed = [cli.build_parser(call[1]).parse_args(call[1:]) for call in calls]
    training, large, generation, *_ = parsed
    assert {args.device for args in parsed if hasattr(args, "device")} == {device}
    corpus = cli.build_parser("corpus").parse_args(prepare[1:])
    assert corpus.out == training.data
    assert generation.ctranslate2 == (not left_out)
    for args in (training, large, generation):
        benchmark = BENCHMARKS[args.bench]
        assert benchmark.variants(from_options(benchmark.options, args)), "UserError"
    assert len({args.out for args in parsed}) == len(parsed)


def test_gpu_check_trains_the_whole_recipe_on_multi30k(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--data", "a folder", "--minutes", "1"]
    done = sandbox.run(*words, script="scripts/gpu_check.sh", NOT_INSTALLED="0")
    tests, *calls = (call.splitlines() for call in done.stdout.split("ran\n-P\n-m\n")[1:])
    assert (done.returncode, tests[0]) == (0, "pytest")
    parsed = [cli.build_parser(call[1]).parse_args(call[1:]) for call in calls]
    training, *_, table = parsed
    assert training.data == table.data == Path("a folder")
    assert (table.rows, table.kinds) == ("multi30k", ["mha", "mhe_mul", "mhe_conv"])
    assert table.updates is None


def test_gpu_check_tells_what_failed_or_had_no_time(sandbox: Sandbox) -> None:
    sandbox.python("python3", "3.12")
    words = ["--data", "a folder", "--minutes", "0"]
    done = sandbox.run(*words, script="scripts/gpu_check.sh", NOT_INSTALLED="0")
    parts = ["tests", "training", "training-large", "generation", "quickstart", "translate"]
    last = f"gpu_check.sh: failed, or had no time: {' '.join(parts)} multi30k"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == last
    words[-1] = "08"  # bash would take it for an octal number
    assert sandbox.run(*words, script="scripts/gpu_check.sh", NOT_INSTALLED="0").returncode == 2
