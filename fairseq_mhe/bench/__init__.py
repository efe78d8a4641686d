"""Speed and memory of stock fairseq's Transformer and every kind of attention, side by side."""
