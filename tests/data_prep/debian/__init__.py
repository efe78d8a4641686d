"""Tests of the corpus of Debian's translations."""
