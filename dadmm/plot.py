"""Draw runs: ``python -m dadmm.plot RUN [RUN ...]``."""

from dadmm.__main__ import command

main = command("plot", __name__)
