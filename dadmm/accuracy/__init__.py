"""Coordinates and starts for data in any units, and bounds on the error of a result.

All sums over nodes go along a spanning tree of the graph. It may import `core` and
`admm`.
"""
