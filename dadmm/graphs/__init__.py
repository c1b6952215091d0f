"""Graphs, their files, schedules of graphs that take turns, and placement on hosts.

It may import `core` and, inside functions, networkx and scipy.
"""
