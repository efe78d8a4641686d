"""Turn subwords into Hugging Face's tokenizer.json, which takes lines of tokens to equal subwords.

Moses' tokeniser stays outside: example.py of a bundle calls sacremoses around the tokenizer.json.
"""

import sentencepiece
from fairseq.data import Dictionary
from subword_nmt import apply_bpe
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram
from tokenizers.processors import TemplateProcessing

from fairseq_mhe.prepare.subword import END_OF_WORD, NOT_LAST, WORD_START
from fairseq_mhe.prepare.text_processing import TextProcessing

#: A tokenizer, and each token's row in fairseq's dictionary. None: the dictionary lacks the token.
#: Then it is <unk> in a sentence, and no translation has it.
TokenizerRows = tuple[Tokenizer, list[int | None]]
_CONTROL = "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]"
_SPACES = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2581]+"
#: A capital sigma that ends a word. The marks in the class may stand between letters of a word.
_LAST_SIGMA = r"(?<=\p{L}[\p{M}'.:·\x{2019}]*)Σ(?![\p{M}'.:·\x{2019}]*\p{L})"
#: The name of Unigram's unknown piece. As Unigram finds pieces by name, no text may have the name.
_UNKNOWN = "\x00"


def make_tokenizer(text: TextProcessing, dictionary: Dictionary) -> TokenizerRows:
    """Make the tokenizer of a model with one dictionary."""
    make = _bpe if text.subword == "bpe" else _sentencepiece
    tokenizer, rows = make(text, dictionary)
    tokenizer.normalizer = _normalizer(text.lowercase)
    # <s>, <pad> and </s> become special tokens, which no text contains.
    eos = dictionary.eos_word
    symbols = [dictionary.bos_word, dictionary.pad_word, eos]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in symbols])
    tokenizer.encode_special_tokens = True  # "</s>" in a text is four characters
    for token in range(len(rows), tokenizer.get_vocab_size()):  # new special tokens
        rows.append(dictionary.index(tokenizer.id_to_token(token)))
    special = [(eos, tokenizer.token_to_id(eos))]
    tokenizer.post_processor = TemplateProcessing(f"$A {eos}", f"$A $B {eos}", special)
    return tokenizer, rows


def _normalizer(lowercase: bool) -> normalizers.Normalizer:
    """Return the steps of `normalise`, then lower case."""
    rules = [(_CONTROL, ""), (_SPACES, " "), ("^ | $", "")]
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    steps += [normalizers.Replace(Regex(pattern), to) for pattern, to in rules]
    if lowercase:  # Lowercase alone makes every capital sigma a σ
        steps.append(normalizers.Replace(Regex(_LAST_SIGMA), "ς"))
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps)


def _decoder(*join_subwords: decoders.Decoder) -> decoders.Decoder:
    """Return a decoder that runs ``join_subwords``, and then strips the line."""
    strip = decoders.Replace(Regex("^ +| +$"), "")
    return decoders.Sequence([*join_subwords, decoders.Fuse(), strip])


def _bpe(text: TextProcessing, dictionary: Dictionary) -> TokenizerRows:
    """Make a tokenizer of subword-nmt's merges, with fairseq's ids; other tokens come after."""
    with text.model.path.open(encoding="utf-8") as codes:
        ranks = apply_bpe.BPE(codes).bpe_codes
    merges = sorted(ranks, key=ranks.get)
    names = dictionary.symbols[: dictionary.nspecial]
    for word in dictionary.symbols[dictionary.nspecial :]:
        # The dictionary marks subwords inside a word (@@), the merges those at its end (</w>).
        inside = word.endswith(NOT_LAST) and word != NOT_LAST
        names.append(word.removesuffix(NOT_LAST) if inside else word + END_OF_WORD)
    ids = {name: row for row, name in enumerate(names)}
    for first, second in merges:
        for name in (first, second, first + second):
            ids.setdefault(name, len(ids))
    rows = [row if row < len(names) else None for row in ids.values()]
    unknown = dictionary.unk_word
    model = BPE(ids, merges, unk_token=unknown, end_of_word_suffix=END_OF_WORD)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ended = decoders.Replace(unknown, unknown + END_OF_WORD)  # <unk> is a whole word
    tokenizer.decoder = _decoder(ended, decoders.BPEDecoder(END_OF_WORD))
    return tokenizer, rows


def _sentencepiece(text: TextProcessing, dictionary: Dictionary) -> TokenizerRows:
    """Make a tokenizer of SentencePiece's pieces, with its ids; other words come after."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(text.model.path))
    piece_ids = list(range(len(processor)))
    pieces = processor.id_to_piece(piece_ids)
    unk_id = processor.unk_id()
    pieces[unk_id] = _UNKNOWN
    scores = processor.get_score(piece_ids)
    # The dictionary's special symbols are left out, since Unigram would find them in text.
    known = {*pieces, *dictionary.symbols[: dictionary.nspecial]}
    names = [*pieces, *(word for word in dictionary.symbols if word not in known)]
    rows = list(map(dictionary.indices.get, names))
    rows[unk_id] = dictionary.unk()
    scores += [min(scores)] * (len(names) - len(scores))
    model = Unigram(list(zip(names, scores, strict=True)), unk_id=unk_id)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(WORD_START)
    unknown = decoders.Replace(_UNKNOWN, dictionary.unk_word)
    tokenizer.decoder = _decoder(unknown, decoders.Replace(WORD_START, " "))
    return tokenizer, rows
