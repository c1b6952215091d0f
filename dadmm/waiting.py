"""Show who waited for whom in a run: ``python -m dadmm.waiting RUN``."""

from dadmm.__main__ import command

main = command("waiting", __name__)
