"""The results of a run: rows in memory, and the files of a run directory.

It records iterations, writes and merges the files of all processes, locks a directory,
and reads finished runs back. It may import `core`, `graphs`, `admm` and `resilience`.
"""
