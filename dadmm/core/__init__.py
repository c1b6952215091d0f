"""The bottom of the package: named vectors, errors, the schema of values, and files.

It holds what every other room needs: `Layout`, the interface of a problem, the errors,
what a setting may be, and safe reading and writing of files. It imports no other room,
only numpy, threadpoolctl and the standard library.
"""
