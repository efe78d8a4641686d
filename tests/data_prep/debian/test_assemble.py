"""Tests of the whole way: from packages to a data folder, killed and gone on with."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from debian import __main__ as program
from debian.corpus import Task, read_task
from fairseq_mhe.common import files
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.prepare.manifest import read_manifest
from fairseq_mhe.prepare.parallel import ordered_map
from tests.data_prep.debian.conftest import catalogue, write_deb
from tests.fixtures.processes import kill, python
from tests.fixtures.text import Pairs

SCRIPT = Path(__file__).resolve().parents[3] / "data-prep" / "debian_en_de.sh"
HELD_OUT = 12
KINDS = {"man", "help", "libreoffice", "descriptions", "gettext", "lyx"}


def script(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run data-prep/debian_en_de.sh."""
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        ["bash", SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=300
    )


def prepare_debian(out: Path, **options: Any) -> Path:
    """Text and data folder, as the script makes them."""
    subwords = {name: options.pop(name) for name in ("vocab_size",) if name in options}
    workers = options.pop("workers", None)
    source = program.make_text(out, workers=workers, **options)
    return program.make_data_folder(out, source, workers=workers, **subwords)


def made(out: Path) -> dict[str, str]:
    """Every file that is part of the result, with its checksum."""
    manifest = read_manifest(out)
    return {
        name: sha256(out / name) for step in manifest["steps"].values() for name in step["files"]
    }


def test_from_packages_to_a_data_folder(folder: Path, tmp_path: Path, texts: Pairs) -> None:
    out = tmp_path / "a data folder"
    options = ("--folder", folder, "--out", out, "--held-out", str(HELD_OUT), "--vocab-size", "100")
    result = script(*options)
    assert (result.returncode, result.stdout.strip()) == (0, str(out)), result.stderr
    assert "warning" not in result.stderr
    manifest = read_manifest(out)
    assert manifest["lines"]["valid"] == manifest["lines"]["test"] == HELD_OUT
    assert (out / "bin" / "train.en-de.en.bin").exists()
    source = manifest["source"]
    assert {kind for kind, counts in source["read"].items() if counts["kept"]} == KINDS
    package = source["packages"]["app"]
    (path,) = folder.glob("app_*.deb")
    assert package == {"version": "2:1.0-1", "source": "app", "sha256": sha256(path)}
    pairs = set(texts)
    for split in ("train", "valid", "test"):
        sides = [
            (out / "raw" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()
            for lang in ("en", "de")
        ]
        assert set(zip(*sides, strict=True)) - pairs <= {("x - a page", "x - a page")}
    for path in out.rglob("documents/*.zip"):
        with zipfile.ZipFile(path) as documents:
            assert {one.compress_type for one in documents.infolist()} <= {zipfile.ZIP_DEFLATED}
    before = made(out)
    times = {name: (out / name).stat().st_mtime_ns for name in before}
    assert script(*options).returncode == 0
    assert {name: (out / name).stat().st_mtime_ns for name in before} == times


def test_workers_change_nothing(folder: Path, tmp_path: Path) -> None:
    one, two = (
        prepare_debian(
            tmp_path / str(workers),
            folder=folder,
            held_out=HELD_OUT,
            vocab_size=100,
            workers=workers,
        )
        for workers in (1, 2)
    )
    assert made(one) == made(two)
    assert read_manifest(one)["source"] == read_manifest(two)["source"]


def test_killed_and_gone_on_with(folder: Path, tmp_path: Path) -> None:
    options = [
        "--folder",
        folder,
        "--held-out",
        str(HELD_OUT),
        "--vocab-size",
        "100",
        "--workers",
        "1",
    ]
    command = [sys.executable, "-m", "debian", *map(str, options)]
    out = tmp_path / "data"
    for marker in ("original/documents/*.zip", "original/pairs/man.tsv"):
        process = subprocess.Popen(
            [*command, "--out", out],
            env={**os.environ, "PYTHONPATH": str(SCRIPT.parent)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not list(out.glob(marker)):
            time.sleep(0.002)
        kill(process)
        assert process.returncode == -signal.SIGKILL
    whole = tmp_path / "whole"
    for data in (out, whole):
        prepare_debian(data, folder=folder, held_out=HELD_OUT, vocab_size=100, workers=1)
    assert made(out) == made(whole)
    assert not [
        path
        for path in out.rglob("*")
        if path.name.endswith(".part") or path.name.startswith(".work")
    ]


def test_what_cannot_be_read_is_left_out_and_told(folder: Path, tmp_path: Path) -> None:
    some = tmp_path / "packages"
    some.mkdir()
    for path in folder.iterdir():
        (some / path.name).symlink_to(path)
    broken = catalogue({"One two three": "Größe zwei drei"}).replace(
        "öß".encode(), b"\x81\xdf\x81\xdf"
    )
    path = "usr/share/locale/de/LC_MESSAGES/broken.mo"
    odd = {
        "usr/share/kf5/kdoctools/customization/de/x.entities": "<!ENTITY x 'ä'>".encode("latin-1"),
        "usr/share/man/de/man1/no-text-\udce4.1.gz": b"",
    }
    man_page = {"usr/share/man/de/man1/x0.1.gz": b"no gzip"}
    write_deb(some, "broken", {path: broken, **man_page, **odd})
    out = prepare_debian(
        tmp_path / "data", folder=some, held_out=HELD_OUT, vocab_size=100, workers=1
    )
    assert program.warnings(read_manifest(out)["source"]) == [
        "could not be read and left out: tools: usr/share/man/de/man1/x0.1.gz",
        f"could not be read and left out: broken: {path}",
    ]


def test_descriptions_follow_the_packages(folder: Path, tmp_path: Path) -> None:
    """Of what is read with a package, its description is held out with it, also when it is new."""
    some = tmp_path / "packages"
    some.mkdir()
    for path in folder.iterdir():
        (some / path.name).symlink_to(path)
    options: dict[str, Any] = {"folder": some, "held_out": HELD_OUT, "workers": 1}
    program.make_text(tmp_path / "data", **options)
    write_deb(some, "described0", {}, source="the-source")
    program.make_text(tmp_path / "data", **options)
    pairs = (tmp_path / "data" / "original" / "pairs" / "descriptions.tsv").read_text()
    assert [line.split("\t")[0] for line in pairs.splitlines()][:2] == ["the-source", "the-source"]


def test_processes_read_archives_that_the_first_one_has_open(tmp_path: Path) -> None:
    """An open file that is forked has one place in it for all."""
    message = {f"message of number {n}": f"Nachricht mit Nummer {n}" for n in range(60)}
    names = [f"usr/share/locale/de/LC_MESSAGES/a{n}.mo" for n in range(160)]
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names:
            archive.writestr(name, catalogue({"": "", **message}))
    documents = [("x", ((tmp_path / "x.zip", name),)) for name in names]
    tasks = [Task("gettext", tuple(documents[at : at + 8])) for at in range(0, 160, 8)]
    read_task(tasks[0])
    found = list(ordered_map(read_task, tasks, workers=4))
    assert [one.counts for one in found] == [{"kept": 8 * 60}] * 20


def nothing_made(out: Path) -> bool:
    """Whether there is nothing that could be taken for a result."""
    return not (out / "manifest.json").exists() and not list(out.rglob("train*"))


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    result = script("--folder", tmp_path / "nothing", "--out", tmp_path / "data")
    assert result.returncode != 0
    (line,) = filter(None, result.stderr.splitlines())
    assert "is not there; --folder must name a folder with .deb files" in line
    assert nothing_made(tmp_path / "data")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"packages": ["app", "nothing"]}, "has no package nothing"),
        ({"held_out": 0}, "--held-out is 0"),
        ({"held_out": 4}, "--held-out is 4; it must be at least 5"),
        ({"held_out": 2000}, "too few to hold out 2,000"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        prepare_debian(tmp_path / "data", folder=folder, workers=1, **options)
    assert nothing_made(tmp_path / "data")


def test_a_release_is_of_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["debian", "--release", "bookworm", "--out", str(tmp_path / "data")]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit, match="error: --release is of a --mirror: give one"):
        program.main()
    assert nothing_made(tmp_path / "data")


def test_packages_that_are_none_are_refused(tmp_path: Path) -> None:
    path = write_deb(tmp_path, "evil", {"./../../etc/evil": b"x"})
    with pytest.raises(UserError, match="leads out of the package"):
        prepare_debian(tmp_path / "data", folder=tmp_path, workers=1)
    path.write_bytes(b"no package")
    with pytest.raises(UserError, match="is no Debian package, or damaged"):
        prepare_debian(tmp_path / "data", folder=tmp_path, workers=1)
    assert nothing_made(tmp_path / "data")


def test_a_wrong_encoding_is_refused(folder: Path, tmp_path: Path) -> None:
    for lang in ("en", "de"):
        text = (folder / f"mirror_Translation-{lang}").read_text(encoding="utf-8")
        (tmp_path / f"Translation-{lang}").write_bytes(f"{text}# ü\n".encode("latin-1", "replace"))
    with pytest.raises(UserError, match="Translation-en is not UTF-8"):
        prepare_debian(tmp_path / "data", folder=tmp_path, workers=1)
    assert nothing_made(tmp_path / "data")


def test_a_disk_that_is_too_small_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = files.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UserError, match="unpacking needs about"):
        prepare_debian(tmp_path / "data", folder=folder, held_out=HELD_OUT)
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_the_text_alone(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "data"
    line = ["--folder", folder, "--out", out, "--held-out", HELD_OUT, "--workers", 1, "--text-only"]
    monkeypatch.setattr(sys, "argv", ["debian", *map(str, line)])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert not ended.value.code
    text = out / "original"
    assert capsys.readouterr().out.strip() == str(text)
    assert not (out / "manifest.json").exists()
    lines = {path.name: path.read_text().count("\n") for path in text.glob("t*.*")}
    assert lines["train.en"] == lines["train.de"] > lines["test.en"] == lines["test.de"] == HELD_OUT
    packages = json.loads((text / "held-out-packages.json").read_text())
    assert set(packages) == {"valid", "test"}
    assert not set(packages["valid"]) & set(packages["test"])


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--help"], 0, "usage: debian_en_de.sh"),
        ([], 1, "not installed: arpy, polib, zstandard; pip install -r "),
    ],
)
def test_without_its_libraries(words: list[str], status: int, told: str, tmp_path: Path) -> None:
    code = "import runpy, sys\n"
    # lxml is there: sacreBLEU needs it, too.
    code += "for name in ('arpy', 'polib', 'zstandard'): sys.modules[name] = None\n"
    code += "runpy.run_module('debian', run_name='__main__')\n"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parent)}
    result = python(code, *words, env=environment, cwd=tmp_path)
    lines = (result.stdout + result.stderr).splitlines()
    assert (result.returncode, told in lines[0]) == (status, True)
    if words == []:
        assert len(lines) == 1
        assert shlex.split(lines[0])[-1] == str(SCRIPT.parent / "debian" / "requirements.txt")
        assert not list(tmp_path.iterdir())
