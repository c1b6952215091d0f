"""The algorithm: consensus ADMM over the edges of a graph.

It holds the iteration, its equations and the stopping rules; what a stop proves is in
`dadmm.solver`. It reads and writes no files. It may import `core`, `graphs`, `penalty`
and `comm`.
"""
