"""The algorithm: consensus ADMM over the edges of a graph.

It holds the iteration, its equations, the stopping rules and what they prove; it reads
and writes no files. It may import `core`, `graphs`, `penalty` and `comm`.
"""
