"""The main job: ``mpiexec -n 20 python -m dadmm.run``, or without mpiexec."""

from dadmm.__main__ import main_of

main = main_of("run", __name__)
