"""For tools that still look for this file; the metadata are in pyproject.toml."""

from setuptools import setup

setup()
