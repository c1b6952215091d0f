"""Coordinates for convex problems in any units, and bounds on the error of a result.

It may import `core`, `exchange` and `admm`. All sums over nodes go along a spanning
tree of the graph.
"""
