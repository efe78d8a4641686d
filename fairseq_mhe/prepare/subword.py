"""Subword models of both languages together: learnt on training text, applied to every split."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import sentencepiece
from subword_nmt import learn_bpe
from subword_nmt.apply_bpe import BPE

from fairseq_mhe.errors import UserError

SUBWORDS = ("bpe", "sentencepiece")
MODEL_TYPES = ("unigram", "bpe")  # SentencePiece's
MODEL_NAMES = {"bpe": "bpe.codes", "sentencepiece": "sentencepiece.model"}
MAX_SENTENCES = 2_000_000  # that SentencePiece learns from; more need memory and change next to nothing
# SentencePiece shares its counts out over threads and adds them up again: another number, another model.
LEARNING_THREADS = 16


def count_words(lines: Iterable[str]) -> Counter[str]:
    """How often each word (what stands between spaces) occurs."""
    return Counter(word for line in lines for word in line.split())


def learn_bpe_model(words: Counter[str], merges: int, path: Path) -> None:
    """Learn ``merges`` byte-pair merges (Sennrich et al. 2016, subword-nmt) and write them to ``path``.

    Raises:
        UserError: there is nothing to merge.
    """
    vocabulary = [f"{word} {count}" for word, count in words.items()]
    if all(len(word) < 2 for word in words):
        raise UserError("the training text has no word of two letters; nothing to learn BPE from")
    with path.open("w", encoding="utf-8") as codes, contextlib.redirect_stderr(io.StringIO()):
        learn_bpe.learn_bpe(vocabulary, codes, merges, is_dict=True)


def learn_sentencepiece(lines: Iterable[str], total: int, pieces: int, model_type: str, path: Path) -> None:
    """Learn a SentencePiece model (Kudo 2018) of at most ``pieces`` from ``total`` lines and write it to ``path``.

    Raises:
        UserError: the text has too many different characters for so few pieces.
    """
    stride = -(-total // MAX_SENTENCES)
    with path.open("wb") as model:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=islice(lines, 0, None, stride),
                model_writer=model,
                vocab_size=pieces,
                model_type=model_type,
                hard_vocab_limit=False,  # a small text may not have that many
                # Joined pieces give back the very text: nothing is normalised, rarer characters stand for themselves.
                normalization_rule_name="identity",
                character_coverage=0.9999,
                num_threads=LEARNING_THREADS,
                bos_id=-1,  # fairseq's dictionary has its own
                eos_id=-1,
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"SentencePiece cannot learn {pieces} pieces from this text: {reason}") from error


@dataclass(frozen=True)
class SubwordModel:
    """A learnt model: its kind (of `SUBWORDS`), its file, and the file's sha256, so that a new one is read anew."""

    kind: str
    path: Path
    checksum: str


@lru_cache(maxsize=1)
def _load(model: SubwordModel) -> BPE | sentencepiece.SentencePieceProcessor:
    if model.kind == "sentencepiece":
        return sentencepiece.SentencePieceProcessor(model_file=str(model.path))
    with model.path.open(encoding="utf-8") as codes:
        return BPE(codes)


def segment(lines: list[str], model: SubwordModel) -> list[str]:
    """``lines`` in subwords with spaces between them.

    BPE marks with a final ``@@`` what does not end a word, SentencePiece with U+2581 what begins one.
    """
    loaded = _load(model)
    if isinstance(loaded, BPE):
        return [loaded.segment(line) for line in lines]
    return [" ".join(pieces) for pieces in loaded.encode(lines, out_type=str)]
