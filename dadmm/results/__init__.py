"""The rows and files of a run: recorded, written, locked, and read back.

It imports `core`, `graphs`, `admm` and `resilience`.
"""
