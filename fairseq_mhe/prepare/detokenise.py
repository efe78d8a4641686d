"""From subwords back to text as a person writes it, which is what is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.tokenise import detokeniser

WORD_START = "\u2581"


def join_bpe(line: str) -> str:
    """Undo subword-nmt's segmentation: a piece that ends in ``@@`` is joined to the next."""
    return f"{line} ".replace("@@ ", "").strip()


def join_sentencepiece(line: str) -> str:
    """Undo SentencePiece's segmentation: a space stands only where a piece begins with U+2581."""
    return line.replace(" ", "").replace(WORD_START, " ").strip()


JOIN: dict[str, Callable[[str], str]] = {"bpe": join_bpe, "sentencepiece": join_sentencepiece}


def detokenise(
    lines: Iterable[str], manifest: Mapping[str, Any], lang: str | None = None
) -> Iterator[str]:
    """Plain text from segmented lines, as hypotheses are, of a data folder with this ``manifest``.

    ``lang`` is the language of the lines; the target language unless given.

    Raises:
        UserError: the manifest names another segmentation.
    """
    try:
        join = JOIN[manifest["subword"]]
        finish = detokeniser(manifest["tokenizer"], lang or manifest["target_lang"])
    except KeyError as error:
        raise UserError(
            f"the manifest does not say how to undo the segmentation: {error}"
        ) from None
    for line in lines:
        yield finish(join(line))
