"""Predict the time of a run on other networks: ``python -m dadmm.replay RUN ...``."""

from dadmm.__main__ import command

main = command("replay", __name__)
