"""Recorded and modelled networks: where the time of a run goes.

It may import `core`, `graphs`, `comm`, `solver` and `runs`.
"""
