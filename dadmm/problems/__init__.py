"""Local problems. A new one is a file and a line here."""

from dadmm.problems.ppca import PPCA

PROBLEMS = {"ppca": PPCA}

__all__ = ["PPCA", "PROBLEMS"]
