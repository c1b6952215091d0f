"""`dadmm.solve`, its result, and advice for runs that did not converge.

It composes the algorithm with an exchange, a penalty scheme, records and checkpoints.
It may import `core`, `graphs`, `penalty`, `exchange`, `admm`, `accuracy`, `resilience`
and `results`, and knows no particular problem.
"""
