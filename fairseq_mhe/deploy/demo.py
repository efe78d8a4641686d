"""``fairseq-mhe demo``: a local page on which models translate side by side."""

import argparse
import importlib.util
import signal
import socket
import subprocess
import sys
from pathlib import Path

from fairseq_mhe.common.arguments import at_least
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.deploy.bundle import open_bundle

ADDRESS = "127.0.0.1"
_PAGE = Path(__file__).with_name("demo_page.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fairseq-mhe demo``."""
    add = parser.add_argument
    told = "bundles of the format fairseq (fairseq-mhe export), a column each"
    add("bundles", nargs="+", type=Path, metavar="BUNDLE", help=told)
    told = "(default: %(default)s)"
    add("--port", type=at_least(1, 65535), default=8501, metavar="N", help=told)
    add("--open", action="store_true", help="open a browser")


def run(args: argparse.Namespace) -> int:
    """Serve the page on this machine only, until Ctrl-C.

    Raises:
        UserError: streamlit is not installed, a bundle is none or for other languages than the
            first, or the port is taken.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise UserError("streamlit is not installed: pip install 'fairseq-mhe[demo]'")
    first, *others = bundles = [open_bundle(path) for path in args.bundles]
    for other in others:
        if other.languages != first.languages:
            raise UserError(
                f"{other.folder} translates {'-'.join(other.languages)}, {first.folder} "
                f"{'-'.join(first.languages)}: show them on pages of their own"
            )
    for bundle in bundles:
        if bundle.format != "fairseq":
            raise UserError(
                f"{bundle.folder} is a bundle for {bundle.format}: export it with --format fairseq"
            )
    _check_free(args.port)
    line = [sys.executable, "-m", "streamlit", "run", str(_PAGE)]
    line += ["--server.address", ADDRESS, "--server.port", str(args.port)]
    line += ["--server.headless", "false" if args.open else "true"]
    line += ["--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none"]
    line += ["--client.toolbarMode", "minimal", "--"]
    line += [str(path.resolve()) for path in args.bundles]
    say(f"http://{ADDRESS}:{args.port} (Ctrl-C ends it)")
    for ending in (signal.SIGINT, signal.SIGTERM):  # the server ends with this process
        signal.signal(ending, signal.default_int_handler)
    server = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        server.terminate()
        server.wait()


def _check_free(port: int) -> None:
    """Raises UserError where another program has the port."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((ADDRESS, port))
        except OSError as error:
            raise UserError(
                f"port {port} of {ADDRESS} cannot be had ({error.strerror}): give another --port"
            ) from None
