"""Graphs: which nodes are neighbours, in which iterations, and on which host.

It holds the graph of a run, graph files, schedules of graphs that take turns, and the
placement of nodes on hosts. It may import `core` and, inside functions, networkx
and scipy.
"""
