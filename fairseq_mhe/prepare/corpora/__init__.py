"""A file for each corpus: its addresses and checksums, and how it becomes a data folder."""
