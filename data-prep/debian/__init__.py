"""An English-German corpus of the documentation and interfaces in Debian's packages."""
