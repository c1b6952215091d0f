"""Run the main job as a rank that does not belong to the others.

Usage: mismatched_rank.py WHAT [arguments of dadmm.run], where WHAT is "dadmm" or
"numpy", for another version, or "graph", for a ring numbered in its own way.
"""

import sys

import dadmm.run
from dadmm import Topology
from dadmm.core import version
from dadmm.graphs.topology import GRAPHS

if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "dadmm":
        version.__version__ = "0.0.1"
    elif what == "graph":
        GRAPHS["ring"] = lambda n, seed: Topology.from_edges(
            n, [(2 * i % n, (2 * i + 2) % n) for i in range(n)]
        )
    sys.exit(dadmm.run.main(arguments))
