"""One training: its recipe, where it runs, how it translates and scores, and its folder."""
