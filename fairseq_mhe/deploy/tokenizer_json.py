"""A model's text processing as Hugging Face's tokenizer.json, which gives the same words."""

from typing import Any

import sentencepiece
from fairseq.data import Dictionary
from subword_nmt import apply_bpe

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.deploy.moses_rules import detokenising, tokenising
from fairseq_mhe.prepare.subword import END_OF_WORD, NOT_LAST, WORD_START
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.prepare.tokenise import ESCAPED

#: A tokenizers.Tokenizer (an extra), and each token's row in fairseq's tables of words. None: the
#: dictionary lacks it; in a sentence it is the unknown word, in a translation never.
Numbered = tuple[Any, list[int | None]]
_CONTROL = "[\x01-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]|\x00"
_SPACES = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2581]+"
#: No normalised text has it: Unigram finds its unknown piece in any text.
_UNKNOWN = "\x00"


def make_tokenizer(text: TextProcessing, dictionary: Dictionary) -> Numbered:
    """For source and target of one dictionary; UserError where the file cannot hold a rule."""
    from tokenizers import AddedToken, Regex, normalizers
    from tokenizers.processors import TemplateProcessing

    escaped = text.tokenizer == ESCAPED
    if text.punctuation or escaped:
        reason = "XML escapes" if escaped else "punctuation normalised (--punctuation)"
        raise UserError(
            f"the model's data have {reason}, which a tokenizer.json cannot hold: export in "
            "another format"
        )
    make = _bpe if text.model.kind == "bpe" else _sentencepiece
    tokenizer, rows = make(text, dictionary)
    # What `normalise` does, then words and punctuation apart, then small letters.
    rules = [(_CONTROL, ""), (_SPACES, " "), ("^ | $", "")]
    if text.tokenizer == "moses":
        rules += [*tokenising(text.languages[0]), (" +", " "), ("^ | $", "")]
    steps: list[Any] = [normalizers.NFC()]
    steps += [normalizers.Replace(Regex(pattern), to) for pattern, to in rules]
    if text.lowercase:
        steps.append(normalizers.Lowercase())
    tokenizer.normalizer = normalizers.Sequence(steps)
    # The dictionary's marks become tokens that no text has, but for the unknown word.
    eos = dictionary.eos_word
    marks = [dictionary.bos_word, dictionary.pad_word, eos]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in marks])
    tokenizer.encode_special_tokens = True  # the text "</s>" is four characters
    for token in range(len(rows), tokenizer.get_vocab_size()):
        rows.append(dictionary.index(tokenizer.id_to_token(token)))
    special = [(eos, tokenizer.token_to_id(eos))]
    tokenizer.post_processor = TemplateProcessing(f"$A {eos}", f"$A $B {eos}", special)
    return tokenizer, rows


def _finish(text: TextProcessing, *first: Any) -> Any:
    """Decode to joined words as a person writes them; ``first`` makes one text of subwords."""
    from tokenizers import Regex, decoders

    rules = [("^ +| +$", "")]
    if text.tokenizer == "moses":
        rules += detokenising(text.languages[1])
    replace = (decoders.Replace(Regex(pattern), to) for pattern, to in rules)
    return decoders.Sequence([*first, decoders.Fuse(), *replace])


def _bpe(text: TextProcessing, dictionary: Dictionary) -> Numbered:
    """subword-nmt's merges; tokens are numbered as the dictionary's words are."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    with text.model.path.open(encoding="utf-8") as codes:
        ranks = apply_bpe.BPE(codes).bpe_codes
    merges = sorted(ranks, key=ranks.get)
    names = dictionary.symbols[: dictionary.nspecial]
    for word in dictionary.symbols[dictionary.nspecial :]:
        # subword-nmt marks what does not end a word, its merges the end.
        inside = word.endswith(NOT_LAST) and word != NOT_LAST
        names.append(word.removesuffix(NOT_LAST) if inside else word + END_OF_WORD)
    numbers = {name: row for row, name in enumerate(names)}
    for first, second in merges:
        for name in (first, second, first + second):
            numbers.setdefault(name, len(numbers))
    rows = [row if row < len(names) else None for row in numbers.values()]
    unknown = dictionary.unk_word
    model = BPE(numbers, merges, unk_token=unknown, end_of_word_suffix=END_OF_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = decoders.Replace(unknown, unknown + END_OF_WORD)
    tokenizer.decoder = _finish(text, end, decoders.BPEDecoder(END_OF_WORD))
    return tokenizer, rows


def _sentencepiece(text: TextProcessing, dictionary: Dictionary) -> Numbered:
    """SentencePiece's pieces in its own order, then the dictionary's other words.

    The dictionary's marks come last because Unigram finds what it has numbered in any text.
    """
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import Unigram

    learnt = sentencepiece.SentencePieceProcessor(model_file=str(text.model.path))
    pieces = [learnt.id_to_piece(index) for index in range(learnt.get_piece_size())]
    pieces[learnt.unk_id()] = _UNKNOWN
    scores = [learnt.get_score(index) for index in range(len(pieces))]
    known = {*pieces, *dictionary.symbols[: dictionary.nspecial]}
    names = [*pieces, *(word for word in dictionary.symbols if word not in known)]
    rows = list(map(dictionary.indices.get, names))
    rows[learnt.unk_id()] = dictionary.unk()
    scores += [min(scores)] * (len(names) - len(scores))
    model = Unigram(list(zip(names, scores, strict=True)), unk_id=learnt.unk_id())
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        WORD_START, prepend_scheme="always"
    )
    unknown = decoders.Replace(_UNKNOWN, dictionary.unk_word)
    tokenizer.decoder = _finish(text, unknown, decoders.Replace(WORD_START, " "))
    return tokenizer, rows
