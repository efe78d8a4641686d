"""The commands over runs and reports."""
