"""A data folder of text that others have preprocessed: tokenised by Moses' rules, then BPE."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import sha256
from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.binarise import pair_texts
from fairseq_mhe.prepare.config import SPLITS
from fairseq_mhe.prepare.last_steps import make_binary, versions
from fairseq_mhe.prepare.manifest import Counts, open_manifest
from fairseq_mhe.prepare.progress import Report, silent
from fairseq_mhe.prepare.subword import MODEL_NAMES
from fairseq_mhe.prepare.text import aligned_lines, read_lines, side_path, write_lines
from fairseq_mhe.prepare.text_processing import plain_text
from fairseq_mhe.prepare.tokenise import ESCAPED

_SUBWORD = "bpe"


def prepare_segmented(
    texts: Mapping[str, Path],
    langs: tuple[str, str],
    out: Path,
    codes: Path | None = None,
    lowercase: bool = False,
    source: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Path:
    """Make the data folder ``out``, or what of it is missing, and return its path.

    Nothing is dropped or changed. The plain text beside it is made by undoing the subwords, Moses'
    escapes (``&apos;``) and its tokens.

    Args:
        texts: split -> prefix of its two files, PREFIX.LANG, plain, .gz or .xz.
        langs: source and target.
        out: the folder to make.
        codes: the merges that the text was split by, for new text.
        lowercase: the text is in small letters.
        source: where it comes from, for the manifest.
        report: told how far it is.

    Raises:
        UserError: a file is missing, is not clean text, or differs from its other side in length;
            or the folder cannot be written.
    """
    files = {f"{split}.{lang}": side_path(texts[split], lang) for split in SPLITS for lang in langs}
    lines = {}
    for split in SPLITS:
        lines[split] = aligned_lines(*(files[f"{split}.{lang}"] for lang in langs))
    if codes is not None:
        files[MODEL_NAMES[_SUBWORD]] = codes
    inputs = {name: sha256(path) for name, path in files.items()}
    total = 2 * sum(lines.values())
    with open_manifest(out, _heading(langs, lowercase, source)) as steps:
        made_from = {"inputs": inputs, "sacremoses": steps.content["versions"]["sacremoses"]}
        report("segment", 0, total)
        steps.run("segment", made_from, partial(_take, files, langs))
        report("segment", total, total)
        report("binarise", 0, total)
        names = [f"dict.{lang}.txt" for lang in langs]
        binary = pair_texts(steps.folder / "subword", langs)
        make_binary(steps, binary, names, cores(), counted=False)
        report("binarise", total, total)
        steps.content["lines"] = lines
        steps.write("complete")
    return out


def _heading(
    langs: tuple[str, str], lowercase: bool, source: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The manifest's keys above the steps."""
    return {
        "source_lang": langs[0],
        "target_lang": langs[1],
        "subword": _SUBWORD,
        "tokenizer": ESCAPED,
        "options": {"lowercase": True} if lowercase else {},
        "versions": versions("sacremoses"),
        **({"source": source} if source else {}),
    }


def _take(files: Mapping[str, Path], langs: tuple[str, str], work: Path) -> Counts:
    """The text as it is, and as a person writes it."""
    for folder in ("subword", "raw"):
        (work / folder).mkdir()
    for name, path in files.items():
        lines = list(read_lines(path))
        write_lines(work / "subword" / name, lines)
        lang = name.rpartition(".")[2]
        if lang in langs:
            _check_no_empty(path, lines)
            write_lines(work / "raw" / name, plain_text(lines, _SUBWORD, ESCAPED, lang))
    return {}


def _check_no_empty(path: Path, lines: list[str]) -> None:
    """fairseq would train on a pair without a side, and sacreBLEU score it."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise UserError(f"{path}, line {number}, is empty: remove the pair from both sides")
