"""The bottom of the package: what every other room needs, see CONTRIBUTING.md.

It imports no other room, only numpy, threadpoolctl and the standard library.
"""
