"""The models: fairseq's Transformer with any attention, its architectures, building, counting."""
