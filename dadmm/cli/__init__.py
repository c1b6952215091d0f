"""The command line behind ``python -m dadmm.run`` and ``python -m dadmm.predict``.

`job` has the stages of a run. The other modules hold the set-up of graph and data, what
results are compared with, the results, and progress. It may import every room but
`sklearn`, `show` and `timing`.
"""
