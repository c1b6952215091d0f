"""The site: its build, and the check of the pages that were built.

It imports `launch.base`, `launch.mpi` and the standard library.
"""
