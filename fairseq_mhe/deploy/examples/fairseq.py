"""Translate the sentences on the command line with fairseq.

pip install PACKAGES
"""

import sys
from pathlib import Path

import fairseq_mhe

translator = fairseq_mhe.Translator.load(Path(__file__).parent)
for line in translator.translate(sys.argv[1:] or ["Hello."]):
    print(line)
