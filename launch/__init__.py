"""Commands that set up environments and start runs: local, test, setup, sweep, batch.

The scripts in this folder are what a person runs; each calls ``python launch COMMAND``.
`launch.console`, `launch.environment` and `launch.mpi` need Python 3.11 and nothing
else, since they install dadmm. What reads runs goes on in the Python of an environment
(`launch.mpi.enter`) and imports dadmm.
"""
