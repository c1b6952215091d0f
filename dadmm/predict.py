"""Predict new rows by a fitted model: ``python -m dadmm.predict RUN new.csv``."""

from dadmm.__main__ import command

main = command("predict", __name__)
