"""Run the main job as a rank that does not belong to the others.

Usage: mismatched_rank.py WHAT [arguments of dadmm.run], where WHAT is "dadmm" or
"numpy", for another version, or "graph", for a ring that this rank numbers in its own
way.
"""

from __future__ import annotations

import sys

import numpy as np

import dadmm.run
from dadmm import Topology
from dadmm.core import version
from dadmm.graphs.topology import GRAPHS

if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "dadmm":
        version.__version__ = "0.0.1"
    elif what == "numpy":
        np.__version__ = "1.26.4"
    elif what == "graph":
        GRAPHS["ring"] = lambda n, seed: Topology.from_edges(
            n, [(2 * i % n, (2 * i + 2) % n) for i in range(n)]
        )
    sys.exit(dadmm.run.main(arguments))
