"""Translate the sentences on the command line with transformers, which caches all heads.

pip install PACKAGES
"""

import sys
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = Path(__file__).parent
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
longest = tokenizer.model_max_length
for line in sys.argv[1:] or ["Hello."]:
    batch = tokenizer([line], return_tensors="pt")
    tokens = batch["input_ids"]  # (1, S), with </s>
    length = tokens.shape[1]
    if length > longest:
        sys.exit(f"a line has {length} subwords, the model takes {longest}: cut the line")
    if length > 1:  # an empty line stays empty
        tokens = model.generate(**batch)
    print(tokenizer.decode(tokens[0], skip_special_tokens=True))
