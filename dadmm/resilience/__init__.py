"""Save a run, resume it, and continue it after ranks have failed.

It imports `core`, `graphs`, `exchange` and `admm`.
"""
