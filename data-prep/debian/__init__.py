"""An English-German corpus from the translated documentation and interfaces in Debian's packages."""
