"""From parallel text to a data folder: clean, split into subwords, binarise, record."""
