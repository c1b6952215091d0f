"""The bottom of the package: named vectors, interfaces, errors, checks and files.

It holds what every other room needs: `Layout`, the protocols and records that pass
between rooms, the errors, checks of settings, and safe reading and writing of files. It
imports no other room, only numpy, threadpoolctl and the standard library.
"""
