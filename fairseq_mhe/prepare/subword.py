"""Subword models for both languages together: learn one on train, apply it to every split."""

import io
import math
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

import sentencepiece
from subword_nmt import apply_bpe
from subword_nmt.learn_bpe import learn_bpe

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.progress import say
from fairseq_mhe.prepare.parallel import map_blocks
from fairseq_mhe.prepare.text import lines_of, read_lines

WORD_START = "\u2581"  # SentencePiece's mark at the beginning of a word
END_OF_WORD = "</w>"  # subword-nmt's mark in the merges
NOT_LAST = "@@"  # BPE's mark at the end of every subword but the last of a word
#: Words that fairseq would read as its own symbols.
SPECIAL_SYMBOLS = frozenset(("<s>", "</s>", "<pad>", "<unk>", "<mask>"))
MODEL_NAMES = {"bpe": "bpe.codes", "sentencepiece": "sentencepiece.model"}
SUBWORDS = tuple(MODEL_NAMES)
COUNT_BYTES = 1 << 22  # bytes a worker counts at a time; larger blocks repeat fewer words
CACHED_WORDS = 500_000  # limit of the words whose subwords a process keeps
MAX_SENTENCES = 2_000_000  # lines for SentencePiece; more lines hardly change its model
MAX_SENTENCE_BYTES = 4192  # SentencePiece skips longer lines, fails on far longer words
LEARNING_THREADS = 16  # fixed: SentencePiece's model depends on the number of threads


def count_words(paths: Sequence[Path], workers: int) -> Counter[str]:
    """Count the words, separated by white space, of text files."""
    words: Counter[str] = Counter()
    for path in paths:
        for block_words in map_blocks(_count, path, COUNT_BYTES, workers, "count"):
            words.update(block_words)
    return words


def _count(block: bytes) -> Counter[str]:
    return Counter(block.decode().split())


def learn_bpe_model(words: Counter[str], merges: int, path: Path) -> None:
    """Write BPE merges (Sennrich et al. 2016) to ``path``; warn if the text has fewer of them.

    UserError if no word can be merged.
    """
    if max(map(len, words), default=0) < 2:
        problem = "no word of two letters to learn BPE from"
        raise UserError(f"{problem}: check the text")
    counts = (f"{word} {count}" for word, count in words.items())
    # subword-nmt draws a progress bar, which only a terminal can show.
    stream = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with path.open("w", encoding="utf-8") as codes, redirect_stderr(stream):
        learn_bpe(counts, codes, merges, is_dict=True)
    learned = path.read_text("utf-8").count("\n") - 1  # the first line is a version
    if learned < merges:
        say(
            f"warning: the text has only {learned:,} of {merges:,} BPE merges, so nearly all of "
            "its words stay whole: --vocab-size 4000 suits some ten thousand pairs"
        )


def learn_sentencepiece(texts: Sequence[Path], pieces: int, path: Path) -> None:
    """Write a model of at most ``pieces`` to ``path``; UserError if ``pieces`` is too low."""

    def lines() -> Iterator[str]:
        return (line for text in texts for line in read_lines(text) if line)

    stride = math.ceil(sum(1 for _ in lines()) / MAX_SENTENCES)
    try:
        with path.open("wb") as model:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_cut_long(islice(lines(), 0, None, stride)),
                model_writer=model,
                vocab_size=pieces,
                model_type="unigram",  # Kudo 2018
                hard_vocab_limit=False,  # a small text may give fewer pieces
                # Joined pieces equal the text: nothing is normalised, unseen characters are pieces.
                normalization_rule_name="identity",
                character_coverage=0.9999,
                num_threads=LEARNING_THREADS,
                bos_id=-1,  # fairseq's dictionary adds <s> and </s>
                eos_id=-1,
                minloglevel=2,
            )
    except RuntimeError as error:
        # error: "INTERNAL: FILE(LINE) [CONDITION] REASON. Increase OPTION", not an option of ours
        reason = str(error).rpartition("] ")[2].partition(". Increase")[0]
        problem = f"SentencePiece cannot learn {pieces} pieces from this text: {reason}"
        raise UserError(f"{problem}; choose another --vocab-size") from error


def _cut_long(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines; cut long ones between words, since no piece crosses words."""
    for line in lines:
        if len(line.encode()) <= MAX_SENTENCE_BYTES:
            yield line
        else:
            characters = MAX_SENTENCE_BYTES // 4  # of at most four bytes each
            yield from textwrap.wrap(line, characters, break_on_hyphens=False)


@dataclass(frozen=True)
class SubwordModel:
    """The file of a subword model, and its kind, one of `SUBWORDS`."""

    kind: str
    path: Path


def segment(lines: list[str], model: SubwordModel) -> list[str]:
    """Return ``lines`` in subwords, with spaces between them."""
    return _load(model, model.path.stat().st_mtime_ns)(lines)


@lru_cache(maxsize=8)
def _load(model: SubwordModel, modified: int) -> Callable[[list[str]], list[str]]:
    """Return the function that segments lines; the file is read again if ``modified`` differs."""
    file = str(model.path)
    try:
        if model.kind == "sentencepiece":
            encode = sentencepiece.SentencePieceProcessor(model_file=file).encode
            return lambda lines: [" ".join(line) for line in encode(lines, out_type=str)]
        # If the merges are damaged, subword-nmt prints a message and exits.
        with open(file, encoding="utf-8") as codes, redirect_stderr(io.StringIO()):
            encode_word = _bpe_encoder(apply_bpe.BPE(codes))
    except (RuntimeError, ValueError, SystemExit):
        problem = f"{file} is no subword model ({model.kind})"
        raise UserError(f"{problem}: restore it") from None
    return lambda lines: [" ".join(map(encode_word, line.split())) for line in lines]


def _bpe_encoder(bpe: apply_bpe.BPE) -> Callable[[str], str]:
    """Return a function from a word to its subwords, with spaces between them."""

    @lru_cache(CACHED_WORDS)
    def subwords_of(word: str) -> str:
        # The last argument is subword-nmt's own cache, which has no limit.
        *symbols, last = apply_bpe.encode(
            word, bpe.bpe_codes, None, None, NOT_LAST, bpe.version, {}
        )
        # The word itself may look like a symbol of fairseq or end in @@: split it once more.
        if last in SPECIAL_SYMBOLS or last.endswith(NOT_LAST):
            symbols.append(last[:-1])
            last = last[-1]
        return f"{NOT_LAST} ".join([*symbols, last])

    return subwords_of


def segment_text(block: bytes, model: SubwordModel, max_length: int = 0) -> bytes:
    """Return a block in subwords; lines of over ``max_length`` subwords are split."""
    lines = segment(lines_of(block), model)
    if max_length:
        parts = (split_long(line, max_length, model.kind) for line in lines)
        lines = list(chain.from_iterable(parts))
    return "".join([f"{line}\n" for line in lines]).encode()


def split_long(line: str, max_length: int, kind: str) -> list[str]:
    """Split a line into lines of at most ``max_length`` subwords, between words if possible."""
    subwords, lines = line.split(" "), []
    while len(subwords) > max_length:
        end = max_length
        while end and not _between_words(subwords[end - 1], subwords[end], kind):
            end -= 1
        end = end or max_length
        lines.append(" ".join(subwords[:end]))
        subwords = subwords[end:]
    return [*lines, " ".join(subwords)]


def _between_words(before: str, after: str, kind: str) -> bool:
    if kind == "bpe":
        return not before.endswith(NOT_LAST)
    return after.startswith(WORD_START)


def join(line: str, kind: str) -> str:
    """Join subwords of a kind to the text that they were made from."""
    if kind == "bpe":
        return f"{line} ".replace(f"{NOT_LAST} ", "").strip()
    return line.replace(" ", "").replace(WORD_START, " ").strip()
