"""Subword models of both languages together: learnt on training text, applied to every split.

`_Splits` applies BPE: it takes 0.4 of subword-nmt's time for a new word (26,000 German words).
"""

import io
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path

import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.parallel import map_blocks
from fairseq_mhe.prepare.text import lines_of, read_lines

WORD_START = "\u2581"  # begins a word of SentencePiece
END_OF_WORD = "</w>"  # in subword-nmt's merges
NOT_LAST = "@@"  # ends a subword of BPE that does not end a word
#: Words that fairseq takes for its own symbols.
SPECIAL_SYMBOLS = frozenset(("<s>", "</s>", "<pad>", "<unk>", "<mask>"))
MODEL_NAMES = {"bpe": "bpe.codes", "sentencepiece": "sentencepiece.model"}
SUBWORDS = tuple(MODEL_NAMES)
COUNT_BYTES = 1 << 22  # of text at a time: the longer, the fewer words are counted twice
CACHED_WORDS = 500_000  # that a process remembers the subwords of
MAX_SENTENCES = 2_000_000  # that SentencePiece learns from; more change next to nothing
MAX_SENTENCE_BYTES = 4192  # it leaves out longer lines, and fails on far longer words
LEARNING_THREADS = 16  # among which it shares counts out: another number, another model


def count_words(paths: Sequence[Path], workers: int) -> Counter[str]:
    """How often each word, with spaces around it, occurs in some texts."""
    words: Counter[str] = Counter()
    for path in paths:
        for counted in map_blocks(_count, path, COUNT_BYTES, workers, "count"):
            words.update(counted)
    return words


def _count(block: bytes) -> Counter[str]:
    return Counter(block.decode().split())


def learn_bpe_model(words: Counter[str], merges: int, path: Path) -> None:
    """Learn byte-pair merges (Sennrich et al. 2016) of words; UserError if none can merge."""
    if max(map(len, words), default=0) < 2:
        raise UserError(
            "nothing to learn BPE from: the training text has no word of two letters"
        )
    counts = (f"{word} {count}" for word, count in words.items())
    # subword-nmt draws a progress bar, which only a terminal can show.
    shown = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with path.open("w", encoding="utf-8") as codes, redirect_stderr(shown):
        learn_bpe(counts, codes, merges, is_dict=True)


def learn_sentencepiece(texts: Sequence[Path], pieces: int, path: Path) -> None:
    """Learn a unigram model of at most ``pieces`` (Kudo 2018); UserError if they are too few."""

    def lines() -> Iterator[str]:
        return (line for text in texts for line in read_lines(text) if line)

    stride = -(-sum(1 for _ in lines()) // MAX_SENTENCES)
    try:
        with path.open("wb") as model:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_in_stretches(islice(lines(), 0, None, stride)),
                model_writer=model,
                vocab_size=pieces,
                model_type="unigram",
                hard_vocab_limit=False,  # a small text may not have that many
                # Joined pieces give back the very text: nothing is normalised, rarer characters
                # stand for themselves.
                normalization_rule_name="identity",
                character_coverage=0.9999,
                num_threads=LEARNING_THREADS,
                bos_id=-1,  # fairseq's dictionary has its own
                eos_id=-1,
                minloglevel=2,
            )
    except RuntimeError as error:
        # "INTERNAL: FILE(LINE) [CONDITION] REASON Increase OPTION": options that we have not
        reason = str(error).rpartition("] ")[2].partition(" Increase")[0]
        problem = f"SentencePiece cannot learn {pieces} pieces from this text: {reason}"
        raise UserError(f"{problem}; choose another --vocab-size") from error


def _in_stretches(lines: Iterable[str]) -> Iterator[str]:
    """The lines, too long ones cut between words, which pieces do not cross."""
    for line in lines:
        if len(line.encode()) <= MAX_SENTENCE_BYTES:
            yield line
        else:
            characters = MAX_SENTENCE_BYTES // 4  # of four bytes at most
            yield from textwrap.wrap(line, characters, break_on_hyphens=False)


@dataclass(frozen=True)
class SubwordModel:
    """A learnt model, of a kind of `SUBWORDS`."""

    kind: str
    path: Path


def segment(lines: list[str], model: SubwordModel) -> list[str]:
    """``lines`` in subwords with spaces between them."""
    return _load(model, model.path.stat().st_mtime_ns)(lines)


@lru_cache(maxsize=8)
def _load(model: SubwordModel, changed: int) -> Callable[[list[str]], list[str]]:
    """A function from lines to lines in subwords; a file that has ``changed`` is read again."""
    file = str(model.path)
    try:
        if model.kind == "sentencepiece":
            encode = sentencepiece.SentencePieceProcessor(model_file=file).encode
            return lambda lines: [" ".join(each) for each in encode(lines, out_type=str)]
        # subword-nmt prints what is wrong and exits.
        with open(file, encoding="utf-8") as codes, redirect_stderr(io.StringIO()):
            splits = _Splits(BPE(codes).bpe_codes)
    except (RuntimeError, ValueError, SystemExit):
        raise UserError(
            f"{file} is no subword model ({model.kind}): restore it"
        ) from None
    return lambda lines: [
        " ".join(map(splits.__getitem__, line.split())) for line in lines
    ]


class _Splits(dict[str, str]):
    """Word -> its subwords with spaces between them, computed when first asked for."""

    def __init__(self, ranks: dict[tuple[str, str], int]) -> None:
        """``ranks``: pair -> its number among the merges."""
        self._ranks, self._none = ranks, len(ranks)

    def __missing__(self, word: str) -> str:
        symbols = self._merged(word)
        last = symbols[-1]
        if last in SPECIAL_SYMBOLS or last.endswith(NOT_LAST):
            symbols[-1:] = [last[:-1], last[-1]]
        pieces = f"{NOT_LAST} ".join(symbols)
        if len(self) < CACHED_WORDS:
            self[word] = pieces
        return pieces

    def _merged(self, word: str) -> list[str]:
        """As ``subword_nmt.apply_bpe.encode``: the pair that was learnt first is merged first."""
        rank_of, none = self._ranks.get, self._none
        symbols = [*word[:-1], word[-1] + END_OF_WORD]
        ranks = [rank_of(pair, none) for pair in pairwise(symbols)]
        while ranks and (best := min(ranks)) < none:
            while best in ranks:  # wherever the pair stands, before another's turn
                at = ranks.index(best)
                symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
                del ranks[at]
                if at:
                    ranks[at - 1] = rank_of((symbols[at - 1], symbols[at]), none)
                if at < len(ranks):
                    ranks[at] = rank_of((symbols[at], symbols[at + 1]), none)
        symbols[-1] = symbols[-1].removesuffix(END_OF_WORD)
        return symbols


def segment_text(
    block: bytes, model: SubwordModel, most: int = 0
) -> tuple[bytes, list[int]]:
    """The lines of a block, of at most ``most`` subwords, as UTF-8; how many subwords each has."""
    lines = segment(lines_of(block), model)
    if most:
        lines = [part for line in lines for part in split_long(line, most, model.kind)]
    text = "".join([f"{line}\n" for line in lines])
    return text.encode(), [line.count(" ") + bool(line) for line in lines]


def split_long(line: str, most: int, kind: str) -> list[str]:
    """A line in lines of at most ``most`` subwords, split between words, or in too long words."""
    tokens, lines = line.split(" "), []
    while len(tokens) > most:
        end = most
        while end and not _between_words(tokens[end - 1], tokens[end], kind):
            end -= 1
        end = end or most
        lines.append(" ".join(tokens[:end]))
        tokens = tokens[end:]
    return [*lines, " ".join(tokens)]


def _between_words(before: str, after: str, kind: str) -> bool:
    if kind == "bpe":
        return not before.endswith(NOT_LAST)
    return after.startswith(WORD_START)


def join(line: str, kind: str) -> str:
    """The text that subwords of a kind were made of."""
    if kind == "bpe":
        return f"{line} ".replace(f"{NOT_LAST} ", "").strip()
    return line.replace(" ", "").replace(WORD_START, " ").strip()
