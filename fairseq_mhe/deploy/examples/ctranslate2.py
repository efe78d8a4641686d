"""Translate the sentences on the command line with CTranslate2.

pip install PACKAGES
"""

import json
import sys
import unicodedata
from pathlib import Path

import ctranslate2

folder = Path(__file__).parent
bundle = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
text, decoding = bundle["text"], bundle["decoding"]
source, target = bundle["moses"]
longest, target_longest = bundle["positions"]
has_tokens = text["tokenizer"] != "none"
has_escapes = text["tokenizer"] == "moses-escaped"
if has_tokens or text["punctuation"]:
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

    normalizer = MosesPunctNormalizer(source, post_remove_control_chars=True)
    tokenizer, detokenizer = MosesTokenizer(source), MosesDetokenizer(target)
if text["subword"] == "bpe":
    from subword_nmt.apply_bpe import BPE

    bpe = BPE((folder / "bpe.codes").open(encoding="utf-8"))
else:
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
search = {"beam_size": decoding["beam"], "length_penalty": decoding["lenpen"]}
translator = ctranslate2.Translator(str(folder))
for line in sys.argv[1:] or ["Hello."]:
    line = " ".join(unicodedata.normalize("NFC", line).split())
    line = "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cs"))
    if text["punctuation"]:
        line = normalizer.normalize(line)
    if has_tokens:
        line = tokenizer.tokenize(line, return_str=True, escape=has_escapes)
    if text["lowercase"]:
        line = line.lower()
    if text["subword"] == "bpe":
        words = bpe.segment(line).split()
    else:
        words = pieces.encode(line, out_type=str)
    length = len(words) + 1  # with </s>
    if length > longest:
        sys.exit(f"a line has {length} subwords, the model takes {longest}: cut the line")
    limit = int(decoding["max_len_a"] * length + decoding["max_len_b"])
    search["max_decoding_length"] = min(limit, target_longest - 1)
    (result,) = translator.translate_batch([words], max_input_length=0, **search)
    best = result.hypotheses[0]
    if text["subword"] == "bpe":
        line = " ".join([*best, ""]).replace("@@ ", "")
    else:
        line = "".join(best).replace("\u2581", " ")
    if has_tokens:
        line = detokenizer.detokenize(line.split(), unescape=has_escapes)
    print(line.strip())
