"""A tokenizer.json gives fairseq's token ids, and the tokens back, for all kinds of subwords."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fairseq.data import Dictionary

from fairseq_mhe.deploy.tokenizer_json import make_tokenizer
from fairseq_mhe.prepare import subword
from fairseq_mhe.prepare.text import write_lines
from fairseq_mhe.prepare.text_processing import TextProcessing, normalise
from fairseq_mhe.prepare.tokenise import detokeniser, tokeniser
from tests.fixtures.text import Pairs

#: Kind of subwords, tokeniser, whether text is made lower case.
KINDS = [
    ("bpe", "moses", False),
    ("bpe", "none", True),
    ("sentencepiece", "none", False),
    ("sentencepiece", "moses", True),
]
ODD = [
    "a <unk> b </s> c",
    "☃ snow☃☃man a日本語b",
    "tab\tand\u00a0this \u2028that\x07\0",
    "e\u0301 é 本 😀!",
    "@@ x@@ y </w>",
    "a\u2581b \u2581",
    "rock'n'roll's   'n' (dogs').",
]


@dataclass(frozen=True)
class Sample:
    """A text processing learnt from a little text, and the dictionary of that text."""

    text: TextProcessing
    dictionary: Dictionary


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: "-".join(kind[:2]))
def sample(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    corpus: dict[str, Pairs],
) -> Sample:
    return make_sample(tmp_path_factory.mktemp("subwords"), corpus, *request.param)


def make_sample(
    folder: Path,
    corpus: dict[str, Pairs],
    kind: str = "bpe",
    tokenizer: str = "moses",
    lowercase: bool = False,
) -> Sample:
    text = TextProcessing("en", "de", tokenizer, kind, lowercase=lowercase, folder=folder)
    lines = []
    for side in (0, 1):
        lines += text.tokens([normalise(line) for line in sides(corpus, side)], side)
    write_lines(folder / "text", lines)
    if kind == "bpe":
        subword.learn_bpe_model(subword.count_words([folder / "text"], 1), 300, text.model.path)
    else:
        subword.learn_sentencepiece([folder / "text"], 300, text.model.path)
    dictionary = Dictionary()
    for side in (0, 1):
        for line in text.segment(sides(corpus, side), side):
            dictionary.encode_line(line)
    dictionary.finalize(padding_factor=8)
    return Sample(text, dictionary)


def sides(corpus: dict[str, Pairs], side: int) -> list[str]:
    return [pair[side] for pair in corpus["train"][:200]]


def test_token_ids_map_to_fairseqs(sample: Sample, corpus: dict[str, Pairs]) -> None:
    tokenizer, rows = make_tokenizer(sample.text, sample.dictionary)
    words = sample.dictionary
    # Text of the test set has characters and pieces that the dictionary lacks.
    lines = [*ODD, *sides(corpus, 0), *(pair[0] for pair in corpus["test"][:300])]
    known = [words.unk() if row is None else row for row in rows]
    given = lines
    if sample.text.tokenizer != "none":  # example.py of a bundle does the same
        given = list(map(tokeniser("moses", "en"), map(normalise, lines)))
    encodings = tokenizer.encode_batch(given)
    ids = [[known[token] for token in encoding.ids] for encoding in encodings]
    segmented = sample.text.segment(lines, 0)
    expected = [words.encode_line(line, add_if_not_exist=False).tolist() for line in segmented]
    assert ids == expected
    capitals, small = "ΟΔΟΣ ΣΑΣ.Σ Σ", replace(sample.text, lowercase=True)
    assert tokenizer.normalizer.normalize_str(capitals).lower() == small.tokens([capitals], 0)[0]
    mapped = sorted(row for row in rows if row is not None)
    assert mapped == list(range(len(words)))  # each word of the dictionary has one token


def test_decoding_gives_plain_text(sample: Sample, corpus: dict[str, Pairs]) -> None:
    tokenizer, rows = make_tokenizer(sample.text, sample.dictionary)
    tokens = {row: token for token, row in enumerate(rows) if row is not None}
    lines = sample.text.segment(sides(corpus, 1)[:150], 1)
    words = sample.dictionary
    ids = [words.encode_line(line, add_if_not_exist=False).tolist() for line in lines]
    batch = [[tokens[index] for index in line] for line in ids]
    decoded = tokenizer.decode_batch(batch, skip_special_tokens=True)
    subwords = [" ".join(words[index] for index in line[:-1]) for line in ids]
    detokenise = detokeniser(sample.text.tokenizer, "de")
    assert list(map(detokenise, decoded)) == sample.text.plain(subwords)
