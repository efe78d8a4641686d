"""Commands that train, score and count models, and print their tables."""
