"""``fairseq-mhe demo``: a local page on which models translate side by side."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fairseq.tasks.translation import TranslationConfig, TranslationTask
from matplotlib.image import imread

from fairseq_mhe.common.arguments import at_least
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import require
from fairseq_mhe.deploy.bundle import open_bundle
from fairseq_mhe.deploy.engine import FAIRSEQ
from fairseq_mhe.deploy.fairseq_engine import FairseqEngine
from fairseq_mhe.deploy.trained import Trained, read_bundle
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.counting import cache_bytes
from fairseq_mhe.report.attention_map import attention_map, draw, encode

EXAMPLE = "Failed to connect."


class DemoModel:
    """A bundle for fairseq in memory, on the CPU."""

    def __init__(self, folder: str) -> None:
        bundle = open_bundle(Path(folder))
        self.trained: Trained = read_bundle(bundle)
        self.translator = Translator(self.trained.loaded(FairseqEngine(self.trained, cpu=True)))
        self.name = f"{bundle.facts['row']}, {self.trained.source.attention_words}"
        self.show(EXAMPLE)  # the first translation takes longer

    def show(self, sentence: str) -> tuple[str, str, Any]:
        """The translation, its time and cache in words, and a picture of the cross-attention."""
        trained, (longest_source, longest_target) = self.trained, self.trained.positions
        task = TranslationTask(TranslationConfig(), *trained.dictionaries)
        source = encode(sentence, 0, trained.text, task.source_dictionary, longest_source)  # (1, S)
        begin = time.perf_counter()
        (line,) = self.translator.translate([sentence])
        milliseconds = 1000 * (time.perf_counter() - begin)
        target = encode(line, 1, trained.text, task.target_dictionary, longest_target)  # (1, T)
        model: Any = trained.source.model
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "map.png"
            draw(attention_map(model, task, "cross", source, target), self.name, path)
            picture = imread(path)
        cache = cache_bytes(model).per_sentence(
            source.size(1), target.size(1), beam=trained.decoding.beam
        )
        facts = f"{milliseconds:,.0f} ms on the CPU; key/value cache at the end: {cache:,} bytes"
        return line, facts, picture


def page(folders: list[str]) -> None:
    """A box for a sentence, and a column for each model; streamlit calls it at each change."""
    import streamlit as st

    st.set_page_config(page_title="fairseq-mhe", layout="wide")
    load = st.cache_resource(show_spinner="Loading ...")(DemoModel)
    sentence = st.text_input("A sentence", EXAMPLE)
    for column, folder in zip(st.columns(len(folders)), folders, strict=True):
        with column:
            model = load(folder)
            st.subheader(model.name)
            try:
                translation, facts, picture = model.show(sentence)
            except UserError as error:
                st.error(str(error))
                continue
            st.text(translation)
            st.caption(facts)
            st.image(picture)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe demo``."""
    help_ = "bundles of the format fairseq (fairseq-mhe export), a column each"
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE", help=help_)
    help_ = "port of this machine (default: %(default)s)"
    parser.add_argument("--port", type=at_least(1, 65535), default=8501, metavar="N", help=help_)
    parser.add_argument("--open", action="store_true", help="open a browser")


def run(args: argparse.Namespace) -> None:
    """Become the server of the page, on this machine only, until Ctrl-C."""
    require("streamlit")
    for path in args.bundles:
        bundle = open_bundle(path)
        if bundle.format != FAIRSEQ:
            raise UserError(f"{path} is a bundle for {bundle.format}: export one for fairseq")
    options = {
        "server.address": "127.0.0.1",
        "server.port": args.port,
        "server.headless": str(not args.open).lower(),
        "server.fileWatcherType": "none",
        "client.toolbarMode": "minimal",
        "browser.gatherUsageStats": "false",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    line = [sys.executable, "-m", "streamlit", "run", __file__, *words, "--", *args.bundles]
    os.execv(sys.executable, [str(word) for word in line])  # noqa: S606 - Ctrl-C ends the server


if __name__ == "__main__":  # streamlit runs this file
    page(sys.argv[1:])
