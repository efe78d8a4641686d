"""Programs that a bundle holds as example.py, one for each format; they read its bundle.json."""
