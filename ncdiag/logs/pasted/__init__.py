"""Readers of pasted command output: one a file, each with the commands it knows."""
