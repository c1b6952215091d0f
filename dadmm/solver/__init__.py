"""`dadmm.solve`, its result, and advice for runs that did not converge.

This room imports `admm`, `exchange`, `resilience` and `results`, and the rooms below.
"""
