"""Translate the sentences on the command line with transformers, which caches all heads.

pip install transformers torch
"""

import sys
from pathlib import Path

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = Path(__file__).parent
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
batch = tokenizer(sys.argv[1:] or ["Hello."], return_tensors="pt", padding=True)
for line in tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True):
    print(line)
