"""Tests of the way from parallel text to a data folder."""
