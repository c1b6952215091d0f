"""Show who waited for whom in a run: ``python -m dadmm.waiting RUN``."""

from dadmm.__main__ import main_of

main = main_of("waiting", __name__)
