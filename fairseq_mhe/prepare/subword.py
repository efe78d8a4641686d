"""Subword models of both languages together: learnt on training text, applied to every split."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from itertools import compress, islice, pairwise, repeat
from pathlib import Path

import sentencepiece
from subword_nmt import learn_bpe
from subword_nmt.apply_bpe import BPE

from fairseq_mhe.common.errors import UserError

SUBWORDS = ("bpe", "sentencepiece")
MODEL_TYPES = ("unigram", "bpe")  # SentencePiece's
MODEL_NAMES = {"bpe": "bpe.codes", "sentencepiece": "sentencepiece.model"}
END_OF_WORD = "</w>"
MIN_FREQUENCY = 2  # of a pair that is merged; subword-nmt's
FREQUENT_PAIRS = 1000  # as many are looked through for each merge; only the speed depends on it
COMPACT_EVERY = 2000  # merges
CACHED_WORDS = 500_000  # that a process remembers the subwords of
Symbols = tuple[str, ...]
MAX_SENTENCES = (
    2_000_000  # that SentencePiece learns from; more need memory and change next to nothing
)
# SentencePiece shares its counts out over threads and adds them up again: another number, another
# model.
LEARNING_THREADS = 16


def count_words(texts: Iterable[str]) -> Counter[str]:
    """How often each word (what stands between spaces) occurs in lines, or in longer texts."""
    words: Counter[str] = Counter()
    for text in texts:
        words.update(text.split())
    return words


def learn_bpe_model(words: Counter[str], merges: int, path: Path) -> None:
    """Learn ``merges`` byte-pair merges (Sennrich et al. 2016, subword-nmt) and write them to ``path``.

    The merges are those of ``subword-nmt learn-bpe``: its own functions count and merge. Only its
    loop stands here again, which looks through all pairs for each merge; this one looks through the
    most frequent. ``words`` is emptied, to save memory.

    Raises:
        UserError: there is nothing to merge.
    """
    vocabulary = sorted(symbols_of(words), key=lambda entry: entry[1], reverse=True)
    if all(len(symbols) < 2 for symbols, _ in vocabulary):
        raise UserError("the training text has no word of two letters; nothing to learn BPE from")
    with path.open("w", encoding="utf-8", newline="\n") as codes:
        codes.write("#version: 0.2\n")
        codes.writelines(f"{first} {second}\n" for first, second in best_merges(vocabulary, merges))


def symbols_of(words: Counter[str]) -> Iterator[tuple[Symbols, int]]:
    """Each word as the symbols that BPE begins with, and its count; ``words`` is emptied."""
    ends: dict[str, str] = {}  # one string for each last letter, not one for each word
    while words:
        word, count = words.popitem()
        end = word[-1] + END_OF_WORD
        yield (*word[:-1], ends.setdefault(end, end)), count


def best_merges(vocabulary: list[tuple[Symbols, int]], merges: int) -> Iterator[tuple[str, str]]:
    """The most frequent pair of symbols, merged, and so on, up to ``merges`` times: ``learn_bpe.learn_bpe``'s loop."""
    counts, places = learn_bpe.get_pair_statistics(vocabulary)
    all_counts = counts.copy()
    threshold = max(counts.values()) / 10
    frequent = FrequentPairs()
    for number in range(merges):
        best = frequent.best(counts)
        if best is None or (number and counts[best] < threshold):
            learn_bpe.prune_stats(counts, all_counts, threshold)
            counts = all_counts.copy()
            frequent = FrequentPairs()
            best = frequent.best(counts)
            assert best is not None  # noqa: S101  # merging leaves every pair in the statistics
            threshold = counts[best] * number / (number + 10000.0)
            learn_bpe.prune_stats(counts, all_counts, threshold)
        if counts[best] < MIN_FREQUENCY:
            return
        yield best
        changes = learn_bpe.replace_pair(best, vocabulary, places)
        learn_bpe.update_pair_statistics(best, changes, counts, places)
        counts[best] = 0
        frequent.add(best, changes, counts)
        if number % 100 == 0:
            learn_bpe.prune_stats(counts, all_counts, threshold)
        if number % COMPACT_EVERY == 0:
            compact(places)


def compact(places: dict[tuple[str, str], dict[int, int]]) -> None:
    """Forget the words that a pair was in and is no longer, which subword-nmt keeps: most of its memory in the end."""
    for pair, words in list(places.items()):
        left = {word: count for word, count in words.items() if count}
        if not left:
            del places[pair]
        elif len(left) < len(words):
            places[pair] = defaultdict(int, left)


class FrequentPairs:
    """The pairs of which one is the most frequent; for the others only fall, unless they have the newest symbol."""

    def __init__(self) -> None:
        """None yet: the first look goes through all."""
        self._pairs: set[tuple[str, str]] = set()
        self._least = 0

    def best(self, counts: dict[tuple[str, str], int]) -> tuple[str, str] | None:
        """The most frequent pair, and of equally frequent ones the last in the alphabet."""
        if not counts:
            return None
        found = list(map(counts.get, self._pairs, repeat(0)))
        if not found or max(found) < self._least:
            self._least = nlargest(FREQUENT_PAIRS, counts.values())[-1]
            self._pairs = {pair for pair, count in counts.items() if count >= self._least}
            found = list(map(counts.get, self._pairs, repeat(0)))
        return max(compress(self._pairs, map(max(found).__eq__, found)))

    def add(
        self,
        merged: tuple[str, str],
        changes: list[tuple[int, Symbols, Symbols, int]],
        counts: dict[tuple[str, str], int],
    ) -> None:
        """Take in what may have become frequent: pairs of the new symbol, in the words that have it."""
        symbol = "".join(merged)
        pairs = {pair for _, word, _, _ in changes for pair in pairwise(word) if symbol in pair}
        self._pairs.update(pair for pair in pairs if counts.get(pair, 0) >= self._least)


def learn_sentencepiece(
    lines: Iterable[str], total: int, pieces: int, model_type: str, path: Path
) -> None:
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
            reason = " ".join(str(error).split())
            raise UserError(
                f"SentencePiece cannot learn {pieces} pieces from this text: {reason}"
            ) from error


@dataclass(frozen=True)
class SubwordModel:
    """A learnt model: its kind (of `SUBWORDS`), its file, and the file's sha256, so that a new one is read anew."""

    kind: str
    path: Path
    checksum: str


class BpeWords(dict[str, str]):
    """Word -> its subwords with spaces between them; each word is split only once."""

    def __init__(self, bpe: BPE) -> None:
        """``bpe`` splits."""
        super().__init__()
        self._bpe = bpe

    def __missing__(self, word: str) -> str:
        subwords = self._bpe.segment(word)
        self._bpe.cache.clear()  # it would keep every word, too
        if len(self) < CACHED_WORDS:
            self[word] = subwords
        return subwords


@lru_cache(maxsize=1)
def _load(model: SubwordModel) -> BpeWords | sentencepiece.SentencePieceProcessor:
    if model.kind == "sentencepiece":
        return sentencepiece.SentencePieceProcessor(model_file=str(model.path))
    with model.path.open(encoding="utf-8") as codes:
        return BpeWords(BPE(codes))


def segment(lines: list[str], model: SubwordModel) -> list[str]:
    """``lines`` in subwords with spaces between them.

    BPE marks with a final ``@@`` what does not end a word, SentencePiece with U+2581 what begins
    one.
    """
    loaded = _load(model)
    if isinstance(loaded, BpeWords):
        return [" ".join(map(loaded.__getitem__, line.split())) for line in lines]
    return [" ".join(pieces) for pieces in loaded.encode(lines, out_type=str)]


@dataclass(frozen=True)
class SegmentedText:
    """Lines in subwords, each with its line end; how many lines and tokens, and how many tokens the longest has."""

    text: str
    lines: int
    tokens: int
    longest: int


def segment_text(text: str, model: SubwordModel) -> SegmentedText:
    """As `segment`, for whole lines as they are in a file."""
    lines = segment(text.removesuffix("\n").split("\n"), model)
    lengths = [line.count(" ") + 1 for line in lines]
    return SegmentedText(
        "".join(f"{line}\n" for line in lines), len(lines), sum(lengths), max(lengths)
    )
