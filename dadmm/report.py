"""Write a page about runs: ``python -m dadmm.report RUN [RUN ...]``."""

from dadmm.__main__ import main_of

main = main_of("report", __name__)
