"""Fitted models: their file, their predictions, and the scores of a run.

It may import `core`, `data`, `problems`, `solver` and `runs`.
"""
