"""Commands that set up environments and start runs: local, test, setup, sweep, batch.

The scripts in this folder are what a person runs; each calls ``python launch COMMAND``.
The code is in `launch.base`, `launch.mpi` and `launch.batch`; each imports only those
before it. It needs Python 3.11 and nothing else, since it also installs dadmm.
"""
