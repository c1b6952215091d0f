"""The main job: ``mpiexec -n 20 python -m dadmm.run``, or without mpiexec."""

from dadmm.__main__ import command

main = command("run", __name__)
