"""The command line behind ``dadmm run``, ``dadmm compare`` and ``dadmm predict``.

`job` has the stages of a run, and `compare` many runs. The other modules hold the
set-up of graph and data, what results are compared with, the results, and progress. It
may import every room but `sklearn`.
"""
