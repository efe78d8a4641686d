"""A WMT14 of a few hundred lines: archives of the same names and inner layout, and a server on 127.0.0.1 for them."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fairseq_mhe.files import sha256
from fairseq_mhe.prepare.home_assistant import CORPUS, read_corpus
from fairseq_mhe.prepare.wmt14 import WMT14, Catalogue, read_catalogue

NEWSTEST = {"newstest2013": "valid", "newstest2014": "test"}  # ours -> the embedded corpus' split


@dataclass(frozen=True)
class Miniature:
    """Where the miniature lies, and what the preparation needs to know of it."""

    folder: Path
    archives: Path  # the four archives
    newstest: Path  # newstest2013.{en,de} and newstest2014.{en,de}
    catalogue_file: Path  # for --catalogue

    @property
    def catalogue(self) -> Catalogue:
        """The archives with their sizes and checksums."""
        return read_catalogue(self.catalogue_file)

    def options(self, mirror: str) -> list[str]:
        """The words that make data-prep/wmt14_en_de.sh take the miniature from the server at ``mirror``."""
        return ["--catalogue", str(self.catalogue_file), "--newstest", str(self.newstest), "--mirror", mirror]


def make_miniature(folder: Path, pairs: int = 300, held_out: int = 20) -> Miniature:
    """Build it in ``folder``: ``pairs`` pairs in each training archive, ``held_out`` in newstest2013 and in 2014."""
    corpus = read_corpus(CORPUS)
    archives, newstest = folder / "archives", folder / "newstest"
    for made in (archives, newstest):
        made.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, original in enumerate(WMT14.corpora):
        some = corpus["train"][number * pairs : (number + 1) * pairs]
        text = {side: "".join(f"{pair[side]}\n" for pair in some) for side in (0, 1)}
        # Other languages beside ours, as in the real archives.
        members = {f"{original.prefix}.{lang}": text[side] for side, lang in enumerate(("en", "de"))}
        members |= {original.prefix.replace("de-en", "fr-en") + ".fr": "Bonjour.\n"}
        path = write_archive(archives / original.file.name, members)
        entry = {"url": original.file.url, "size": path.stat().st_size, "sha256": sha256(path)}
        entries.append({**entry, "prefix": original.prefix, "lines": pairs})
    for name, split in NEWSTEST.items():
        for side, lang in enumerate(("en", "de")):
            lines = [pair[side] for pair in corpus[split][:held_out]]
            (newstest / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    catalogue = folder / "catalogue.json"
    catalogue.write_text(json.dumps({"corpora": entries, "newstest": dict.fromkeys(NEWSTEST, held_out)}))
    return Miniature(folder, archives, newstest, catalogue)


def write_archive(path: Path, members: Mapping[str, str | bytes]) -> Path:
    """A tar archive packed with gzip: member -> text. The same members give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, text in members.items():
            data = text if isinstance(text, bytes) else text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return path


@dataclass
class Server:
    """A running server, what was asked of it, and what it shall do wrong."""

    url: str
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path, Range
    break_after: list[int] = field(default_factory=list)  # of the next answers, send only so many bytes
    ranges: bool = True  # whether it can go on in the middle of a file
    status: int | None = None  # answer everything with it


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Server]:
    """Serve the files of ``folder`` on 127.0.0.1 at a free port."""
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server = Server(f"http://127.0.0.1:{httpd.server_port}")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            server.requests.append((self.path, asked))
            path = folder / self.path.lstrip("/")
            if server.status or not path.is_file():
                self.send_error(server.status or 404)
                return
            data = path.read_bytes()
            match = re.fullmatch(r"bytes=(\d+)-", asked or "") if server.ranges else None
            start = int(match[1]) if match else 0
            if start and start >= len(data):
                self.send_error(416)
                return
            self.send_response(206 if match else 200)
            if match:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            end = start + server.break_after.pop(0) if server.break_after else len(data)
            self.wfile.write(data[start:end])
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    httpd.RequestHandlerClass = Handler
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
