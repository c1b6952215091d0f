"""Runs under mpiexec: choose an MPI, start ranks, stop them, explain failures.

It holds the commands local, test and setup, and what `launch.batch` and
`benchmarks.emulation` share with them. It imports `launch.base` and the standard
library.
"""
