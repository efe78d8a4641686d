"""The experiments: rows, runs, scores, the table and the pictures."""
