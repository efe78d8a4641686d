"""One module for each corpus: download its files and prepare them as a data folder."""
