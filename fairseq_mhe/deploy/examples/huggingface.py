"""Translate the sentences on the command line with transformers, which caches all heads.

pip install PACKAGES
"""

import json
import sys
import unicodedata
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = Path(__file__).parent
bundle = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
text = bundle["text"]
source, target = bundle["moses"]
has_tokens = text["tokenizer"] != "none"
has_escapes = text["tokenizer"] == "moses-escaped"
if has_tokens or text["punctuation"]:
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

    normalizer = MosesPunctNormalizer(source, post_remove_control_chars=True)
    moses, detokenizer = MosesTokenizer(source), MosesDetokenizer(target)
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
longest = tokenizer.model_max_length
for line in sys.argv[1:] or ["Hello."]:
    line = " ".join(unicodedata.normalize("NFC", line).split())
    line = "".join(c for c in line if unicodedata.category(c) not in ("Cc", "Cs"))
    if text["punctuation"]:
        line = normalizer.normalize(line)
    if has_tokens:
        line = moses.tokenize(line, return_str=True, escape=has_escapes)
    batch = tokenizer([line], return_tensors="pt")  # lower-cases, if the model needs it
    tokens = batch["input_ids"]  # (1, S), with </s>
    length = tokens.shape[1]
    if length > longest:
        sys.exit(f"a line has {length} subwords, the model takes {longest}: cut the line")
    if length > 1:  # an empty line stays empty
        tokens = model.generate(**batch)
    line = tokenizer.decode(tokens[0], skip_special_tokens=True)
    if has_tokens:
        line = detokenizer.detokenize(line.split(), unescape=has_escapes)
    print(line)
