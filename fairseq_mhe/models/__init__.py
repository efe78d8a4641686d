"""The models: fairseq's Transformer with any attention, its architectures, and what they cost."""
