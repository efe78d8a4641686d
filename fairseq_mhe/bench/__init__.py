"""Speed and memory of stock fairseq's Transformer and of every kind of attention, side by side in one run."""
