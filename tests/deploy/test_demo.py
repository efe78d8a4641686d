"""The demonstration page, in streamlit's own test harness and in a real browser, windowless."""

from __future__ import annotations

import io
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from fairseq_mhe import cli
from fairseq_mhe.deploy import demo_models
from fairseq_mhe.deploy.demo_models import DemoModel
from fairseq_mhe.deploy.export import export
from fairseq_mhe.deploy.translator import Translator
from tests.deploy.browser import open_page, translate_and_picture
from tests.deploy.conftest import SOURCES, trained

pytestmark = pytest.mark.usefixtures("exported")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Path:
    """A second bundle, of MHA."""
    folder = tmp_path_factory.mktemp("mha") / "bundle"
    export(trained("mha"), "fairseq", folder)
    return folder


def test_what_is_shown_of_a_model(exported: Path, translator: Translator) -> None:
    model = DemoModel(exported)
    found = model.show(SOURCES[0])
    assert [found.translation] == translator.translate([SOURCES[0]])
    facts = model.facts
    source = len(translator._segment([SOURCES[0]])[0]) + 1
    with translator._lock:
        (subwords,) = translator._text.segment([found.translation], side=1)
    target = len(subwords.split()) + 1
    per_target = facts["cache_bytes_per_target_token"] * target * translator.decoding.beam
    assert found.cache == facts["cache_bytes_per_source_token"] * source + per_target
    width, height = Image.open(io.BytesIO(found.picture)).size
    assert min(width, height) > 100
    assert found.seconds > 0


def test_waiting_for_others_is_not_counted(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, locked = DemoModel(exported), []
    clock = SimpleNamespace(perf_counter=lambda: float(locked.append(model._lock.locked()) or 0))
    monkeypatch.setattr(demo_models, "time", clock)
    model.show(SOURCES[0])
    assert locked == [True, True]


def test_the_page_has_a_column_for_each_model(
    exported: Path, other: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("streamlit.testing.v1", reason="streamlit is not installed")
    from fairseq_mhe.deploy import demo_page

    monkeypatch.setattr(sys, "argv", ["demo_page.py", str(other), str(exported)])
    app = testing.AppTest.from_file(demo_page.__file__, default_timeout=120).run()
    assert not app.exception
    assert [each.value for each in app.subheader] == ["tiny, mha", "tiny, mhe_mul"]
    app.text_input[0].input(SOURCES[0])
    app.button[0].click()
    app.run()
    assert app.text[1].value == translator.translate([SOURCES[0]])[0]
    app.text_input[0].input(" ")
    app.button[0].click()
    app.run()
    assert [each.value for each in app.error] == ["the sentence is empty: give some text"] * 2


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def test_in_a_browser(exported: Path, other: Path, tmp_path: Path) -> None:
    pytest.importorskip("streamlit", reason="streamlit is not installed")
    pytest.importorskip("playwright", reason="playwright is not installed")
    port = free_port()
    line = [sys.executable, "-m", "fairseq_mhe.cli", "demo", other, exported, "--port", str(port)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert f"http://127.0.0.1:{port}" in process.stderr.readline()
            _wait_for(port, 120)
            with open_page(f"http://127.0.0.1:{port}") as page:
                shown = translate_and_picture(page, SOURCES[1], 2, tmp_path / "page.png")
        finally:
            process.terminate()
    assert process.returncode == 0
    assert "tiny, mha" in shown
    assert "tiny, mhe_mul" in shown
    assert len(re.findall(r"ms on the CPU; key/value cache at the end [\d,]+ bytes", shown)) == 2
    assert Image.open(tmp_path / "page.png").size[0] == 1200
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0


def _wait_for(port: int, seconds: int) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the server does not answer")


def test_what_cannot_be_shown_is_one_line(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("streamlit", reason="streamlit is not installed")
    assert cli.main(["demo", str(exported), str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "is no bundle: it has no bundle.json" in error
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert cli.main(["demo", str(exported), "--port", port]) == 2
    assert "cannot be had (Address already in use): give another --port" in capsys.readouterr().err


def test_without_streamlit_there_is_one_clear_line(
    exported: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "streamlit" or None)
    assert cli.main(["demo", str(exported)]) == 2
    assert "pip install 'fairseq-mhe[demo]'" in capsys.readouterr().err
