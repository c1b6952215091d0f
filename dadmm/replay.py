"""Predict the time of a run on other networks: ``python -m dadmm.replay RUN ...``."""

from dadmm.__main__ import main_of

main = main_of("replay", __name__)
