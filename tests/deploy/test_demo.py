"""The demo page: what it shows for a model; Streamlit is a mock."""

import os
import runpy
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from fairseq_mhe import cli
from fairseq_mhe.deploy import demo
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.counting import cache_bytes
from fairseq_mhe.runs.processes import OWN_USER_DIR
from tests.deploy.conftest import SOURCES, trained

Patch = pytest.MonkeyPatch


def test_show_returns_the_translation_the_cache_size_and_a_picture(
    exported: Path, translator: Translator, monkeypatch: Patch
) -> None:
    ours, draw = Translator.load(exported, engine="fairseq", cpu=True), demo.draw_sentence
    monkeypatch.setattr(demo, "draw_sentence", lambda *args: ours.lock.locked() and draw(*args))
    line, facts, picture = demo.show(ours, SOURCES[0])
    assert [line] == translator.translate([SOURCES[0]])
    segment, cache = translator.model.text.segment, cache_bytes(trained().source.model)
    source, target = (
        len(segment([x], side)[0].split()) for side, x in enumerate((SOURCES[0], line))
    )
    expected = cache.per_source_token * (source + 1)
    expected += cache.per_target_token * (target + 1) * translator.decoding.beam
    assert facts.endswith(f"key/value cache: {expected:,} bytes")
    assert picture.startswith(b"\x89PNG")
    monkeypatch.setattr(ours, "translate", lambda _: [""])  # a hardly trained model's translation
    assert demo.show(ours, SOURCES[0])[0] == ""


def test_each_column_shows_the_error_for_a_bad_sentence(brief: Path, monkeypatch: Patch) -> None:
    columns = [Mock(), Mock()]
    fake = Mock(cache_resource=lambda load: load, columns=lambda _: columns)
    monkeypatch.setitem(sys.modules, "streamlit", fake)
    for sentence, message in (("a. " * 1100, "takes at most 1024"), ("\x07", "empty")):
        fake.text_input = lambda *_, sentence=sentence: sentence
        demo.page([str(brief)] * 2)
        for column in columns:
            (shown,) = column.error.call_args.args
            assert message in shown
            column.image.assert_not_called()


def test_the_server_imports_the_users_kinds(tmp_path: Path, monkeypatch: Patch) -> None:
    """The server is another process than the command, which imports the user-dir, too."""
    (tmp_path / "__init__.py").touch()
    monkeypatch.setenv(OWN_USER_DIR, str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["demo.py"])
    monkeypatch.setitem(sys.modules, "streamlit", Mock(columns=lambda _: []))
    runpy.run_path(demo.__file__, run_name="__main__")
    assert sys.modules.pop(tmp_path.name, None)


def test_the_server_is_local_only(brief: Path, monkeypatch: Patch) -> None:
    server = Mock()
    monkeypatch.setattr(demo, "require", lambda package: None)
    monkeypatch.setattr(os, "execv", server)
    assert cli.main(["demo", str(brief)]) == 0
    program, line = server.call_args.args
    assert (program, line[0], line[-1]) == (sys.executable, sys.executable, str(brief))
    assert "--server.address=127.0.0.1" in line
