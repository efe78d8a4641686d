"""Checkpoints: read safely, averaged, inspected, and as models in memory."""
