"""A trained model as something to use: bundles in several formats, translation of plain text."""
