"""The command line behind ``dadmm run``, ``compare``, ``sweep`` and ``predict``.

`job` has the stages of a run. It may import every room but `sklearn`.
"""
