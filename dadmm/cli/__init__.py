"""The command line behind ``python -m dadmm.run``.

It holds the settings of a run with their flags and TOML keys, the set-up of graph and
data, progress, and the report. It may import every room but `sklearn`, `drawing`,
`timing` and `testing`.
"""
