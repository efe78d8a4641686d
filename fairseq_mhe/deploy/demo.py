"""``fairseq-mhe demo``: serve a local page on which models translate side by side."""

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from fairseq.utils import import_user_module

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.system import require
from fairseq_mhe.deploy.attention_map import draw_sentence
from fairseq_mhe.deploy.bundle import open_bundle
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.models.counting import cache_bytes
from fairseq_mhe.runs.processes import user_dir


def show(translator: Translator, sentence: str) -> tuple[str, str, bytes]:
    """Return a translation, its time and cache size in words, and its cross-attention as PNG."""
    translator.translate([sentence])  # a model's first translation takes longer
    begin = time.perf_counter()
    (translation,) = translator.translate([sentence])
    milliseconds = 1000 * (time.perf_counter() - begin)
    with TemporaryDirectory() as folder, translator.lock:
        picture = Path(folder, "map.png")
        target = translation or None  # if it is empty, its subwords may not be
        weights = draw_sentence(translator.model, "cross", sentence, target, picture)
        size = len(weights.keys), len(weights.queries), translator.decoding.beam
        cache = cache_bytes(translator.model.source.model).per_sentence(*size)
        facts = f"{milliseconds:,.0f} ms on the CPU; key/value cache: {cache:,} bytes"
        return translation, facts, picture.read_bytes()


def page(folders: list[str]) -> None:
    """Show a text box, and a column for each model. Streamlit calls this after each input."""
    import streamlit as st

    st.set_page_config(page_title="fairseq-mhe", layout="wide")
    sentence = st.text_input("A sentence", "Failed to connect.")
    load = st.cache_resource(Translator.load)
    for column, folder in zip(st.columns(len(folders)), folders, strict=True):
        translator = load(folder, engine="fairseq", cpu=True)
        kind = translator.model.source.attention_summary
        column.subheader(f"{Path(folder).name}: {kind}")
        if sentence.strip():
            try:
                translation, facts, picture = show(translator, sentence)
            except UserError as error:  # the sentence is too long, or has no visible text
                column.error(str(error))
                continue
            column.text(translation)
            column.caption(facts)
            column.image(picture)


def add_arguments(parser: ArgumentParser) -> None:
    help_ = "bundles of the format fairseq (from fairseq-mhe export), one a column"
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE", help=help_)


def run(args: Namespace) -> None:
    """Become the page's server, which only this machine can reach, until Ctrl-C."""
    for path in args.bundles:
        if open_bundle(path).format != "fairseq":
            raise UserError(f"{path} is no fairseq bundle: export with --format fairseq")
    require("streamlit")
    options = "-m streamlit run --server.address=127.0.0.1 --server.headless=true "
    options += "--server.fileWatcherType=none --browser.gatherUsageStats=false "
    options += "--client.toolbarMode=minimal --theme.primaryColor=#2166ac"
    command = [sys.executable, *options.split(), __file__, "--", *map(str, args.bundles)]
    os.execv(sys.executable, command)  # noqa: S606 - so Ctrl-C reaches the server itself


if __name__ == "__main__":  # when streamlit runs this file
    import_user_module(Namespace(user_dir=str(user_dir())))
    page(sys.argv[1:])
