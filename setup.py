"""A shim for what still looks for this file; the metadata are in pyproject.toml."""

from setuptools import setup

setup()
