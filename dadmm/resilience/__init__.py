"""Checkpoints, and runs that continue after a rank has failed.

It saves and restores the state of nodes, and rebuilds the network from the nodes that
are left. It may import `core`, `graphs`, `exchange` and `admm`.
"""
