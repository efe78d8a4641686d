"""Prepare text for fairseq: clean it, split it into subwords, binarise it, record each step."""
