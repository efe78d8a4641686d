"""``fairseq-mhe demo``: a local page on which models translate side by side."""

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import NamedTemporaryFile

from fairseq.tasks.translation import TranslationConfig, TranslationTask

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


def load(folder: str) -> tuple[Trained, Translator]:
    """The model of a bundle for fairseq, on the CPU; the first translation takes longer."""
    trained = read_bundle(open_bundle(Path(folder)))
    translator = Translator(trained, FairseqEngine(trained, cpu=True))
    translator.translate([EXAMPLE])
    return trained, translator


def show(trained: Trained, translator: Translator, sentence: str) -> tuple[str, str, bytes]:
    """The translation, its time and cache in words, and a picture of the cross-attention."""
    task, model = (
        TranslationTask(TranslationConfig(), *trained.dictionaries),
        trained.source.model,
    )
    begin = time.perf_counter()
    (line,) = translator.translate([sentence])
    milliseconds = 1000 * (time.perf_counter() - begin)
    longest = trained.positions
    source = encode(sentence, 0, trained.text, task.source_dictionary, longest[0])  # (1, S)
    target = encode(line, 1, trained.text, task.target_dictionary, longest[1])  # (1, T)
    cache = cache_bytes(model).per_sentence(
        source.size(1), target.size(1), trained.decoding.beam
    )
    with NamedTemporaryFile(suffix=".png") as file:
        weights = attention_map(model, task, "cross", source, target)  # type: ignore[arg-type]
        draw(weights, trained.source.attention_words, Path(file.name))
        picture = Path(file.name).read_bytes()
    return line, f"{milliseconds:,.0f} ms on the CPU; key/value cache: {cache:,} bytes", picture


def page(folders: list[str]) -> None:
    """A box for a sentence, and a column for each model; streamlit calls it at each change."""
    import streamlit as st

    st.set_page_config(page_title="fairseq-mhe", layout="wide")
    sentence = st.text_input("A sentence", EXAMPLE)
    for column, folder in zip(st.columns(len(folders)), folders, strict=True):
        trained, translator = st.cache_resource(load)(folder)
        column.subheader(trained.source.attention_words)
        if sentence.strip():
            translation, facts, picture = show(trained, translator, sentence)
            column.text(translation)
            column.caption(facts)
            column.image(picture)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe demo``."""
    help_ = "bundles of the format fairseq (fairseq-mhe export), a column each"
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE", help=help_)
    help_ = "port of this machine (default: %(default)s)"
    parser.add_argument(
        "--port", type=at_least(1, 65535), default=8501, metavar="N", help=help_
    )
    parser.add_argument("--open", action="store_true", help="open a browser")


def run(args: argparse.Namespace) -> None:
    """Become the server of the page, on this machine only, until Ctrl-C."""
    require("streamlit")
    for path in args.bundles:
        if open_bundle(path).format != FAIRSEQ:
            raise UserError(
                f"{path} is no bundle for fairseq: export one with --format fairseq"
            )
    options = ["--server.address=127.0.0.1", "--browser.gatherUsageStats=false"]
    options += ["--server.fileWatcherType=none", f"--server.port={args.port}"]
    options.append(f"--server.headless={not args.open}".lower())
    line = [sys.executable, "-m", "streamlit", "run", __file__, *options, "--", *args.bundles]
    os.execv(sys.executable, [str(word) for word in line])  # noqa: S606 - Ctrl-C ends the server


if __name__ == "__main__":  # streamlit runs this file
    page(sys.argv[1:])
