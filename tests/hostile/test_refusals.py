"""One table of what users get wrong: a command ends in one line that names it, leaving nothing.

What the files of a room may hold is tested in that room.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fairseq_mhe import cli
from fairseq_mhe.experiments import evaluate
from fairseq_mhe.runs import train as training
from tests.fixtures.processes import PYTHON
from tests.fixtures.runs import REPOSITORY
from tests.fixtures.small_runs import SMALL, run_of
from tests.fixtures.text import write_parallel

PREPARE = "prepare --hold-out=9 --source-lang=en --target-lang=de --train"
TRAIN = "train tiny mha --cpu --data {data} --out {out}"
TABLE = "run-table --rows tiny --data {data} --out {out}"
STUDY = "run-table --study {study} --data {data} --out {out}"
CONVERT = "convert {run}/model.pt {out} --to"
MAP = "attention-map {run} --data {data} --out {out}.png --sentence"
#: The command line, and what its last line must name.
REFUSED = [
    ("cost --jsn", "did you mean --json?"),
    ("cost --nonsense", "--nonsense"),
    ("cost base mhe", "unknown attention 'mhe'"),
    ("cost transformer_lm_mhe_wiki103 mha", "cutoff larger than vocab size"),
    ("cost base mha --kv-heads 2", "--attention-kv-heads"),
    ("cost roberta_mhe_tiny mha --cross-attention mqa", "roberta_mhe_tiny"),
    ("cost nowhere mha", "nowhere"),
    ("cost tiny", "give a kind of attention"),
    ("cost {run} mha", "has its own attention"),
    ("bench generation --lengths 1", "'1'"),
    ("bench generation --row huge", "'huge'"),
    ("bench generation --int8 --dtype bf16", "--int8 and --bf16"),
    (f"{CONVERT} mha", "mhe_mul"),
    (f"{CONVERT} collaborative --collaborative-dim 1000000000000000", "memory"),
    (f"{CONVERT} mqa --attention-kv-heads=2", "--attention-kv-heads"),
    (f"{CONVERT} mqa --data nowhere", "nowhere"),
    ("convert {run}/model.pt {run}/test/../model.pt --to mqa", "is an input"),
    (f"{PREPARE} {{text}} --out {{out}} --target-lang en", "'en'"),
    (f"{PREPARE} {{text}} --out {{out}} --source-lang ../en", "'../en'"),
    ("prepare --train {text} --out {out} --source-lang en --target-lang de", "--valid"),
    (f"{PREPARE} {{text}} --valid {{text}} --test {{text}} --out {{out}}", "--hold-out"),
    (f"{PREPARE} nowhere/a.tsv.gz --out {{out}}", "nowhere/a.tsv.gz"),
    (f"{PREPARE} {{text}} --out {{files}}", "text.en lies inside"),
    (f"{PREPARE} {{text}} --out {{loop}}/out", "loop"),
    (f"{PREPARE} {{loop}} --out {{out}}", "loop.en does not exist"),
    (f"{PREPARE} {{bad}} --out {{out}}", "bad.en, line 2"),
    ("corpus ptb --folder {folder} --out {out}", "ptb.train.txt does not exist"),
    ("train tiny mha --data {data} --out {out} --processes 3", "3 x 256"),
    (f"{TRAIN} --evaluate --subset nothing", "nothing"),
    (f"{TRAIN} --bleu-tokenizer char", "--bleu-tokenizer"),
    (f"{TRAIN} --recipe mine.yaml", "--recipe"),
    ("train tiny mha --cpu --data {data} --out {loop}/out", "loop"),
    ("train tiny mha --cpu --out {out} --data {loop}", "loop"),
    ("train mha --cpu --data {data} --out {out}", "a row"),
    (f"{TABLE} --finished-only", "{out}"),
    (f"{TABLE} --updates 1.5", "--updates"),
    (f"{TABLE} --kinds mha,nonsense", "nonsense"),
    (f"{TABLE} --seeds 4294967296 --cpu", "4294967296"),
    (f"{TABLE} --gpus 64", "64"),
    ("run-table --rows tiny --cpu --data {data} --out {loop}/out", "loop"),
    (f"{STUDY} --only nothing", "--only nothing"),
    (f"{STUDY} --finished-only", "no model of "),
    (f"{STUDY} --kinds mha", "--kinds"),
    ("evaluate {loop}", "loop"),
    ("inspect /dev/zero", "/dev/zero is not a file"),
    ("inspect nowhere", "nowhere does not exist"),
    ("translate {bundle} {bad}.en", "bad.en, line 2"),
    ("translate {bundle} - nowhere", "nowhere"),
    ("translate nowhere {text}.en", "nowhere does not exist"),
    ("translate {text}.en {text}.en", "text.en is truncated or no fairseq checkpoint"),
    ("translate {bundle} {text}.en --data x", "--data"),
    ("translate {bundle} {text}.en --cpu --nbest 5 --beam 4", "beam of 4"),
    ("translate {bundle} {text}.en --cpu --beam 1000000000000000", "at most 1000"),
    ("translate {bundle} {bad}.en --out {bad}/../bad.en", "bad.en is an input"),
    ("export {data} {bundle}/README.md/out", "README.md is a file"),
    ("export {bundle} {out}", "a bundle"),
    ("export {run}/model.pt {out}", "--data"),
    ("export {run} {bundle} --data {data}", "a bundle exists"),
    ("demo {folder}", "bundle.json does not exist"),
    ("demo {ctranslate2}", "--format fairseq"),
    (f"{MAP} \t", "the sentence is empty"),
    (f"{MAP} lamp --target \t", "the target is empty"),
    (f"{MAP} {'lamp,' * 1100}", "takes at most 1024"),
    (f"{MAP} lamp --out map.gif", "map.gif"),
]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of each engine; no test writes in it."""
    folder = tmp_path_factory.mktemp("bundles")
    folders = {"bundle": folder / "a bundle", "ctranslate2": folder / "ctranslate2"}
    for name, path in folders.items():
        words = ["export", run_of("mhe_mul"), path, "--data", SMALL / "data", "--format"]
        format = "fairseq" if name == "bundle" else name
        assert cli.main([*map(str, words), format]) == 0
    return folders


@pytest.fixture
def places(
    tmp_path: Path, bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """Files and folders by their names in `REFUSED`; the current folder is another one."""
    files = tmp_path / "files"
    write_parallel(files / "text", [("one", "eins")] * 9)
    write_parallel(files / "bad", [("one", "eins")] * 9)
    (files / "bad.en").write_bytes(b"one\n\xff\n" + b"one\n" * 7)
    for link in ("loop", "loop.en"):
        (files / link).symlink_to(link)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    copies = {"data": SMALL / "data", "run": run_of("mha")}
    for name, folder in copies.items():
        shutil.copytree(folder, tmp_path / name)
    names = ("text", "bad", "loop")
    return {
        **bundles,
        **{name: files / name for name in names},
        **{name: tmp_path / name for name in copies},
        "out": tmp_path / "out",
        "files": files,
        "folder": tmp_path / "here",
        "study": REPOSITORY / "scripts" / "studies" / "gap-study.yaml",
    }


def contents(folder: Path) -> dict[str, int]:
    """Return path -> size of all files and folders but locks."""
    paths = (path for path in folder.rglob("*") if path.name != ".lock")
    return {str(path): path.lstat().st_size * path.is_file() for path in paths}


@pytest.mark.parametrize(("line", "named"), REFUSED, ids=[line[:60] for line, _ in REFUSED])
def test_a_command_refuses_in_one_line_and_leaves_nothing(
    line: str,
    named: str,
    places: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a refused command left could be in the way of the corrected one."""

    def start(*_: object, **more: object) -> None:
        raise AssertionError("the command begins its work")

    monkeypatch.setattr(training, "start", start)
    monkeypatch.setattr(evaluate, "_translate", start)
    monkeypatch.setattr(os, "execv", start)
    before = contents(tmp_path)
    words = [word.format(**places) for word in line.split(" ")]
    try:
        status: object = cli.main(words)
    except SystemExit as end:
        status = end.code
    printed, errors = capsys.readouterr()
    error = errors.splitlines()[-1]
    assert (status, printed) == (2, ""), errors
    assert "Traceback" not in errors
    assert error.startswith(f"fairseq-mhe {words[0]}")
    assert named.format(**places) in error
    assert error.isprintable()
    after = contents(tmp_path)
    after.pop(str(places["out"]), None)
    assert after == before


@pytest.mark.parametrize(
    ("streams", "line", "named"),
    [
        (">&-", "recipe tiny", "standard output is closed"),
        (">/dev/full", "cost base mha", "standard output: No space left on device"),
        ("<&- >&- 2>&-", "recipe tiny", ""),
        ("<&-", "translate {run} --data {data} --cpu", "standard input is closed"),
        ("<&-", "cost base mha", None),
        ("2>&-", "cost base mha", None),
    ],
)
def test_streams_that_cannot_be_used_are_one_line(
    streams: str, line: str, named: str | None, places: dict[str, Path]
) -> None:
    """Only those that the command needs; Python without a buffer fails elsewhere.

    Each command is a new Python, so none of them loads fairseq.
    """
    words = [PYTHON, "-m", "fairseq_mhe_cli", *(word.format(**places) for word in line.split())]
    for unbuffered in ("", "1") if named else ("",):
        shell = ["bash", "-c", f'exec "$@" {streams}', "bash", *words]
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(shell, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == (0 if named is None else 2), done.stderr
        assert (named or "") in done.stderr
        assert done.stderr.count("\n") == bool(named)
        assert bool(done.stdout) == (named is None)
