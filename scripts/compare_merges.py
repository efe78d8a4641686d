"""Do HuggingFace tokenizers and SentencePiece learn subword-nmt's BPE merges? DATA: a data folder.

Compares their merges, learnt on DATA's tokenised training text, with DATA's bpe.codes: how many are
equal, and how many words and lines of the test set they cut otherwise.
"""

import io
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import sentencepiece
from subword_nmt.apply_bpe import BPE
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from fairseq_mhe.prepare.data_folder import open_data

END = "</w>"


def words_of(paths: Iterable[Path]) -> Counter[str]:
    words: Counter[str] = Counter()
    for path in paths:
        words.update(path.read_text("utf-8").split())
    return words


def learn_tokenizers(words: Counter[str], merges: int) -> list[str]:
    """Return the merges of tokenizers' BpeTrainer, as bpe.codes writes them."""
    letters = {letter for word in words for letter in (*word[:-1], word[-1] + END)}
    size = len(letters) + merges
    options = {"min_frequency": 2, "end_of_word_suffix": END, "show_progress": False}
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix=END))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=size, limit_alphabet=size, **options)
    tokenizer.train_from_iterator(words.elements(), trainer)
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def cut_by(merges: list[str]) -> Callable[[str], str]:
    bpe = BPE(io.StringIO("\n".join(["#version: 0.2", *merges])))
    return lambda word: " ".join(bpe.segment_tokens([word]))


def cut_by_sentencepiece(words: Counter[str], merges: int) -> Callable[[str], str]:
    """Words are reversed, because SentencePiece marks their begin and subword-nmt their end."""
    model = io.BytesIO()
    letters = len(set("".join(words))) + len({word[-1] for word in words})
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(word[::-1] for word in words.elements()),
        model_writer=model,
        vocab_size=merges + letters,
        model_type="bpe",
        normalization_rule_name="identity",
        character_coverage=1.0,
        split_by_unicode_script=False,
        split_by_number=False,
        max_sentencepiece_length=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def cut(word: str) -> str:
        pieces = processor.encode(word[::-1], out_type=str)
        letters = [piece.replace("\u2581", "")[::-1] for piece in reversed(pieces)]
        return "@@ ".join(filter(None, letters))

    return cut


def main(folder: Path) -> None:
    data = open_data(folder)
    paths = {
        split: [data.text(split, side, "tokenised") for side in (0, 1)]
        for split in ("train", "test")
    }
    train, test = words_of(paths["train"]), words_of(paths["test"])
    lines = [line for path in paths["test"] for line in path.read_text("utf-8").splitlines()]
    ours = (data.folder / "subword" / "bpe.codes").read_text("utf-8").splitlines()[1:]
    theirs = learn_tokenizers(train, len(ours))
    same = [one == other for one, other in zip(ours, theirs, strict=False)]
    print(f"tokenizers: {len(theirs):,} merges, subword-nmt {len(ours):,}")
    print(f"the first {same.index(False):,} are equal; {len(set(ours) & set(theirs)):,} in common")
    expected = cut_by(ours)
    for name, cut in (
        ("tokenizers", cut_by(theirs)),
        ("SentencePiece", cut_by_sentencepiece(train, len(ours))),
    ):
        other = {word for word in test if cut(word) != expected(word)}
        changed = sum(not other.isdisjoint(line.split()) for line in lines)
        print(f"{name} cuts {len(other):,} of {len(test):,} words of test otherwise,", end=" ")
        print(f"in {changed:,} of {len(lines):,} lines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
