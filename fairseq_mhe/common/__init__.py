"""Errors, files, options, progress and the machine, for all packages; imports none of them."""
