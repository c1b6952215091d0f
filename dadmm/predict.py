"""Predict new rows by a fitted model: ``python -m dadmm.predict RUN new.csv``."""

from dadmm.__main__ import main_of

main = main_of("predict", __name__)
