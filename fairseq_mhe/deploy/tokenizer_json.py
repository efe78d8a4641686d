"""A model's text processing as Hugging Face's tokenizer.json, which gives the same words.

Everything is in that file: Unicode's composed form, Moses' tokeniser (`moses_rules`), the subword
model, and the way back. Tests hold it equal to `TextProcessing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sentencepiece
from fairseq.data import Dictionary

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.moses_rules import Rule, detokenising, tokenising
from fairseq_mhe.prepare.subword import END_OF_WORD
from fairseq_mhe.prepare.text_processing import TextProcessing

if TYPE_CHECKING:  # an extra that need not be installed
    from tokenizers import Tokenizer, decoders, normalizers

#: The file's name.
TOKENIZER = "tokenizer.json"
_CONTINUES = "@@"  # ends what does not end a word, in the dictionary
_CONTROL = "[\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]|\x00"
_SPACES = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
_WORD_START = "\u2581"
_UNKNOWN = "\x00"  # which no normalised text has: Unigram finds its unknown piece in any text


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer, and of each of its tokens the row in fairseq's tables of words.

    A row is None of a token that only stands between characters and words: the dictionary lacks it,
    so that in a sentence it is the unknown word, and it is never in a translation.
    """

    tokenizer: Tokenizer
    rows: list[int | None]


def make_tokenizer(text: TextProcessing, dictionary: Dictionary) -> Vocabulary:
    """The tokenizer of a model whose source and target have one dictionary.

    Raises:
        UserError: the processing has a rule that a tokenizer.json cannot hold.
    """
    from tokenizers import normalizers
    from tokenizers.processors import TemplateProcessing

    if text.punctuation:
        raise UserError(
            "the model's data have punctuation written in one way (--punctuation), whose rules a "
            "tokenizer.json cannot hold: export in another format"
        )
    if text.escaped:
        raise UserError(
            "the model's data have XML escapes (&apos;), which a tokenizer.json does not make: "
            "export in another format"
        )
    if text.model.kind == "bpe":
        tokenizer, rows = _bpe(text, dictionary)
    else:
        tokenizer, rows = _sentencepiece(text, dictionary)
    tokenizer.normalizer = normalizers.Sequence(_normalisers(text))
    eos = dictionary.eos_word
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {eos}", pair=f"$A $B {eos}", special_tokens=[(eos, tokenizer.token_to_id(eos))]
    )
    return Vocabulary(tokenizer, rows)


def _normalisers(text: TextProcessing) -> list[normalizers.Normalizer]:
    """What `prepare.clean.normalise` does, then words and punctuation apart, then small letters."""
    from tokenizers import Regex, normalizers

    rules: list[Rule] = [(_CONTROL, ""), (_SPACES, " "), ("^ | $", "")]
    if text.tokenised:
        rules += [*tokenising(text.languages[0]), (" +", " "), ("^ | $", "")]
    found = [normalizers.NFC(), *(normalizers.Replace(Regex(p), to) for p, to in rules)]
    return [*found, normalizers.Lowercase()] if text.lowercase else found


def _finish(text: TextProcessing, *first: decoders.Decoder) -> decoders.Decoder:
    """Joined words as a person writes them; ``first`` makes one text of subwords."""
    from tokenizers import Regex, decoders

    rules: list[Rule] = [("^ +| +$", "")]
    if text.tokenised:
        rules += detokenising(text.languages[1])
    replace = (decoders.Replace(Regex(pattern), to) for pattern, to in rules)
    return decoders.Sequence([*first, decoders.Fuse(), *replace])


def _bpe(text: TextProcessing, dictionary: Dictionary) -> tuple[Tokenizer, list[int | None]]:
    """subword-nmt's merges; tokens are numbered as the dictionary's words are."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    merges = _merges(text.model.path.read_text(encoding="utf-8").splitlines())
    vocabulary = {name: row for row, name in enumerate(_bpe_names(dictionary))}
    rows: list[int | None] = list(range(len(vocabulary)))
    for first, second in merges:
        for name in (first, second, first + second):
            if name not in vocabulary:
                vocabulary[name] = len(vocabulary)
                rows.append(None)
    unknown = dictionary.unk_word
    model = BPE(vocabulary, merges, unk_token=unknown, end_of_word_suffix=END_OF_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    _add_special(tokenizer, dictionary)
    tokenizer.decoder = _finish(
        text, decoders.Replace(unknown, unknown + END_OF_WORD), decoders.BPEDecoder(END_OF_WORD)
    )
    return tokenizer, rows


def _merges(lines: Sequence[str]) -> list[tuple[str, str]]:
    """The merges of a file of subword-nmt's, the first of equal ones."""
    pairs = (tuple(line.split(" ")) for line in lines if line and not line.startswith("#version"))
    return list(dict.fromkeys((first, second) for first, second in pairs))


def _bpe_names(dictionary: Dictionary) -> list[str]:
    """The dictionary's words as merging knows them, which marks the end of a word."""
    names = []
    for row, word in enumerate(dictionary.symbols):
        if row < dictionary.nspecial:
            names.append(word)
        elif word.endswith(_CONTINUES) and word != _CONTINUES:
            names.append(word.removesuffix(_CONTINUES))
        else:
            names.append(word + END_OF_WORD)
    return names


def _sentencepiece(
    text: TextProcessing, dictionary: Dictionary
) -> tuple[Tokenizer, list[int | None]]:
    """SentencePiece's pieces in its own order, then the dictionary's other words, then the marks.

    The marks come last because Unigram finds what it has numbered in any text.
    """
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE, Unigram

    learnt = sentencepiece.SentencePieceProcessor(model_file=str(text.model.path))
    pieces = [learnt.id_to_piece(index) for index in range(learnt.get_piece_size())]
    pieces[learnt.unk_id()] = _UNKNOWN
    scores = [learnt.get_score(index) for index in range(len(pieces))]
    known = set(pieces) | set(dictionary.symbols[: dictionary.nspecial])
    others = [word for word in dictionary.symbols if word not in known]
    rows: list[int | None] = []
    for index, piece in enumerate([*pieces, *others]):
        row = dictionary.index(piece)
        is_known = row != dictionary.unk() or learnt.unk_id() == index
        rows.append(row if is_known else None)
    # Scores are the order of merging of the one kind, and logarithms of probabilities of the other.
    if not all(score.is_integer() for score in scores):
        listed = list(zip([*pieces, *others], [*scores, *[min(scores)] * len(others)], strict=True))
        tokenizer = Tokenizer(Unigram(listed, unk_id=learnt.unk_id()))
    else:
        numbers = {piece: index for index, piece in enumerate([*pieces, *others])}
        merges = _merges_of_pieces(pieces, scores)
        tokenizer = Tokenizer(BPE(numbers, merges, unk_token=_UNKNOWN, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_WORD_START, prepend_scheme="always")
    for word in _add_special(tokenizer, dictionary):
        if tokenizer.token_to_id(word) == len(rows):
            rows.append(dictionary.index(word))
    unknown = decoders.Replace(_UNKNOWN, dictionary.unk_word)
    tokenizer.decoder = _finish(text, unknown, decoders.Replace(_WORD_START, " "))
    return tokenizer, rows


def _merges_of_pieces(pieces: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, the best pieces first."""
    score = dict(zip(pieces, scores, strict=True))
    found = []
    for piece in pieces:
        for place in range(1, len(piece)):
            if piece[:place] in score and piece[place:] in score:
                found.append((-score[piece], piece[:place], piece[place:]))
    return [(first, second) for _, first, second in sorted(found, key=lambda merge: merge[0])]


def _add_special(tokenizer: Tokenizer, dictionary: Dictionary) -> list[str]:
    """Make the dictionary's marks tokens that no text has, but for the unknown word."""
    from tokenizers import AddedToken

    words = [dictionary.bos_word, dictionary.pad_word, dictionary.eos_word]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words])
    tokenizer.encode_special_tokens = True  # the text "</s>" is four characters
    return words
