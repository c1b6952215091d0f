"""Batch jobs of Slurm and PBS, and sweeps over settings.

A batch job starts or resumes one run; a sweep starts many, as a job array or on this
machine. It imports `launch.base`, `launch.mpi` and the standard library.
"""
