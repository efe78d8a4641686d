"""One file a corpus: where it is, what it is checked against, and how it becomes a data folder."""
