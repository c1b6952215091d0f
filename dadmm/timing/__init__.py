"""Where the time of a recorded run went, and what it would be on other networks.

`waiting`, `replay` and `calibrate` are the commands. This room reads folders of runs
through `results` and imports `core` and `graphs` besides.
"""
