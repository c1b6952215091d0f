"""Recorded and modelled networks: where the time of a run goes.

It holds the trace of a recorded run, models of networks, and the simulation of a run on
another network. It may import `core`, `graphs`, `comm`,
`solver` and `runs`.
"""
