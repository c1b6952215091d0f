"""Fit a network to measurements: ``python -m dadmm.calibrate ROWS.csv``."""

from dadmm.__main__ import command

main = command("calibrate", __name__)
