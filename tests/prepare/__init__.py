"""Tests of the preparation, from text to a data folder."""
