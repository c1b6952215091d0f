"""The main job, ``python -m dadmm.run``: settings, set-up, progress and report.

`settings` has every setting, `job` the steps of a run. This room imports the solver and
the rooms below it; only `drawing` and the package root import it.
"""
