"""`dadmm.solve`: the plan of a run, its coordinates and start, and its result.

`plan` says which kind a run is. `raw`, `metric`, `units` and `merged` have a class for
each kind: how it is prepared, when it stops, and what is known of its result. All sums
over nodes go along a spanning tree of the graph. This room may import `core`, `graphs`,
`penalty`, `comm` and `admm`, and knows no particular problem.
"""
