"""Write a page about runs: ``python -m dadmm.report RUN [RUN ...]``."""

from dadmm.__main__ import command

main = command("report", __name__)
