"""Fitted models: their file, their predictions, and the scores of a run.

It may import `core`, `data`, `problems` and `results`. What is summed over nodes is
summed by a function that the caller gives.
"""
