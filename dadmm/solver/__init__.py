"""`dadmm.solve`: the plan of a run, a class for each kind of run, and its result.

All sums over nodes go along a spanning tree of the graph. This room may import `core`,
`graphs`, `penalty`, `comm` and `admm`, and knows no particular problem.
"""
