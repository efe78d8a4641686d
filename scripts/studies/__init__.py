"""Studies over several trainings: programs that use the package and are not installed with it."""
