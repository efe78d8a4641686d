"""Text that is already in subwords, as a corpus was published, becomes a data folder."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from fairseq_mhe.common.system import cores
from fairseq_mhe.prepare.manifest import PARALLEL, Counts, Facts, open_manifest
from fairseq_mhe.prepare.steps import hashes_of, make_binary, pair_texts
from fairseq_mhe.prepare.subword import MODEL_NAMES
from fairseq_mhe.prepare.text import read_lines, read_pairs, side_path, write_lines
from fairseq_mhe.prepare.text_spec import TextSpec
from fairseq_mhe.prepare.tokenise import ESCAPED


def prepare_segmented(
    texts: Mapping[str, Path],
    langs: tuple[str, str],
    out: Path,
    codes: Path | None = None,
    source: Facts | None = None,
) -> Path:
    """Make a data folder from lower-case text in Moses' tokens and BPE subwords.

    Every line stays as it is; undoing subwords, escapes (``&apos;``) and tokens gives raw/.
    ``texts``: split -> PREFIX of two files PREFIX.LANG; ``codes``: file of the BPE merges, to
    segment new text; ``source`` and errors as in `prepare`.
    """
    spec = TextSpec(*langs, ESCAPED, "bpe", lowercase=True)
    sides = {
        split: tuple(side_path(prefix, lang) for lang in langs)
        for split, prefix in texts.items()
    }

    def action(work: Path) -> Counts:
        for folder in ("subword", "raw"):
            (work / folder).mkdir()
        if codes:
            write_lines(work / "subword" / MODEL_NAMES["bpe"], read_lines(codes))
        lines = {}
        for split, pair in sides.items():
            columns = zip(*read_pairs(pair), strict=True)
            for side, column in enumerate(columns):
                lines[split] = len(column)
                name = f"{split}.{langs[side]}"
                write_lines(work / "subword" / name, column)
                write_lines(work / "raw" / name, spec.plain(column, side))
        return lines

    paths = list(chain(*sides.values()))
    if codes:
        paths.append(codes)
    facts = {"text_spec": spec.stored, "source": source or {}}
    with open_manifest(out, PARALLEL, facts, cores()) as manifest:
        lines = manifest.run("segment", hashes_of({"inputs": paths}, cores()), action)
        make_binary(manifest, pair_texts(langs, "subword"))
        manifest.complete(lines=lines)
    return out
