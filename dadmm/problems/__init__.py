"""Local problems. A new one is a file and a line here."""

from dadmm.problems.ppca import PPCA
from dadmm.problems.sfm import StructureFromMotion

PROBLEMS = {"ppca": PPCA, "sfm": StructureFromMotion}

__all__ = ["PPCA", "PROBLEMS", "StructureFromMotion"]
