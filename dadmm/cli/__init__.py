"""The command line behind ``dadmm run``, ``dadmm compare`` and ``dadmm predict``.

`job` has the stages of a run. It may import every room but `sklearn`.
"""
