"""A trained model as something to use: bundles, translation of plain text, attention maps."""
