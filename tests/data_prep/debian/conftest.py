"""What these tests share: tiny packages and catalogues, and a folder with some of every kind."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polib
import pytest
import zstandard

from tests.fixtures.text import Pairs

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    "": bytes,
}


def tar(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """An archive of files, with the names as they are given, and of symbolic links."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return stream.getvalue()


def ar(members: Mapping[str, bytes]) -> bytes:
    """An archive in the format of ar(5)."""
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        parts.append(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
        parts.append(content + b"\n" * (len(content) % 2))
    return b"".join(parts)


def control(name: str, version: str = "1.0-1", source: str | None = None) -> str:
    """A package's control file."""
    origin = f"Source: {source}\n" if source else ""
    identity = f"Package: {name}\n{origin}Version: {version}\nArchitecture: all\n"
    return f"{identity}Description: a test\n It is one.\n"


def write_deb(
    folder: Path,
    name: str,
    files: Mapping[str, bytes],
    *,
    version: str = "1.0-1",
    source: str | None = None,
    compression: str = ".xz",
    links: Mapping[str, str] | None = None,
) -> Path:
    """A package with ``files``, path (usr/share/...) -> content, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    compress = COMPRESS[compression]
    data = tar(
        {
            path if path.startswith((".", "/")) else f"./{path}": content
            for path, content in files.items()
        },
        links,
    )
    path = folder / f"{name}_{version.replace(':', '%3a')}_all.deb"
    path.write_bytes(
        ar(
            {
                "debian-binary": b"2.0\n",
                f"control.tar{compression}": compress(
                    tar({"./control": control(name, version, source).encode()})
                ),
                f"data.tar{compression}": compress(data),
            }
        )
    )
    return path


def catalogue(messages: Mapping[str, Any], **metadata: str) -> bytes:
    """A gettext catalogue; a message's value is its translation, or the keys of a polib entry."""
    made = polib.POFile(encoding=metadata.pop("encoding", "utf-8"))
    made.metadata = {"Content-Type": f"text/plain; charset={made.encoding}", **metadata}
    for message, value in messages.items():
        made.append(
            polib.POEntry(
                msgid=message, **(value if isinstance(value, dict) else {"msgstr": value})
            )
        )
    return made.to_binary()


def man(*paragraphs: str) -> bytes:
    """A compressed man page."""
    body = "\n.PP\n".join(paragraphs)
    return gzip.compress(f'.TH X 1\n.SH NAME\nx \\- a page\n.SH "A HEADING"\n{body}\n'.encode())


def descriptions(pairs: Pairs, lang: str) -> str:
    """A Translation file; each package has one sentence as its heading and one as its text."""
    side = ("en", "de").index(lang)
    stanzas = []
    for number, (first, second) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        stanzas.append(
            f"Package: described{number}\nDescription-md5: {number:032}\n"
            f"Description-{lang}: {first[side]}\n {second[side]}\n"
        )
    return "\n".join(stanzas)


@pytest.fixture(scope="session")
def texts(corpus: dict[str, Pairs]) -> Pairs:
    """Sentence pairs of five and more words, all different in their letters."""
    from debian.keep import reason_to_drop
    from debian.split import key
    from debian.text import sentence_pairs

    found: dict[str, tuple[str, str]] = {}
    for pair in corpus["train"]:
        if (
            len(pair[0].split()) >= 5
            and reason_to_drop(pair) is None
            and sentence_pairs(*pair) == [pair]
        ):
            found.setdefault(key(pair[0]), pair)
    return list(found.values())


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, texts: Pairs) -> Path:
    """A folder with a package for each kind of document, and descriptions; not to be changed."""
    folder = tmp_path_factory.mktemp("some packages")
    pages = [texts[100:110], texts[110:120]]
    for side, lang in enumerate(("", "de/")):
        name = "manpages-de" if side else "tools"
        files = {
            f"usr/share/man/{lang}man1/x{n}.1.gz": man(*(p[side] for p in page))
            for n, page in enumerate(pages)
        }
        write_deb(folder, name, files)
    html = {
        lang: "".join(
            f'<p id="par_id{n}">{pair[side]}</p>' for n, pair in enumerate(texts[120:140])
        )
        for side, lang in enumerate(("en-US", "de"))
    }
    for lang, body in html.items():
        path = f"usr/share/libreoffice/help/{lang}/text/a.html"
        write_deb(
            folder,
            f"help-{lang.lower()}",
            {path: f"<html><body>{body}</body></html>".encode()},
            source="lo-help",
        )
    pages = texts[140:160]
    docbook = {
        f"usr/share/help/{lang}/x/index.docbook": "".join(
            ["<article>", *(f"<para>{pair[side]}</para>" for pair in pages), "</article>"]
        ).encode()
        for side, lang in enumerate(("C", "de"))
    }
    write_deb(folder, "app-doc", docbook, compression=".zst", source="app")
    lyx = {
        f"usr/share/lyx/doc/{lang}Intro.lyx": "".join(
            f"\\begin_layout Standard\n{pair[side]}\n\\end_layout\n" for pair in texts[160:180]
        ).encode()
        for side, lang in enumerate(("", "de/"))
    }
    write_deb(folder, "lyx-common", lyx, compression=".gz")
    messages = {"": "", **dict(texts[180:260])}
    write_deb(
        folder,
        "app",
        {"usr/share/locale/de/LC_MESSAGES/app.mo": catalogue(messages)},
        version="2:1.0-1",
    )
    for lang in ("en", "de"):
        (folder / f"mirror_Translation-{lang}").write_text(
            descriptions(texts[:100], lang), encoding="utf-8"
        )
    return folder
