"""The models: fairseq's Transformer with any attention, its architectures, how one is built, and what it costs."""
