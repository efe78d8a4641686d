"""The ground floor: errors, files, steps, progress, the machine. Imports nothing of ours."""
