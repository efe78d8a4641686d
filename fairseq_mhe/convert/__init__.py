"""Commands that turn one model into another, and what they share."""
