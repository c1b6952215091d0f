"""Local problems. A new one is a file and a line here."""

from dadmm.problems.huber import Huber
from dadmm.problems.lasso import ElasticNet, Lasso
from dadmm.problems.least_squares import LeastSquares, Ridge
from dadmm.problems.logistic import LogisticRegression
from dadmm.problems.lost_tracks import LostTracks
from dadmm.problems.missing import IncompletePPCA
from dadmm.problems.mixture import GaussianMixture
from dadmm.problems.ppca import PPCA
from dadmm.problems.sfm import StructureFromMotion

PROBLEMS: dict[str, type] = {
    "ppca": PPCA,
    "sfm": StructureFromMotion,
    "least_squares": LeastSquares,
    "ridge": Ridge,
    "lasso": Lasso,
    "elastic_net": ElasticNet,
    "logistic": LogisticRegression,
    "huber": Huber,
    "mixture": GaussianMixture,
}

__all__ = [
    "PPCA",
    "PROBLEMS",
    "ElasticNet",
    "GaussianMixture",
    "Huber",
    "IncompletePPCA",
    "Lasso",
    "LeastSquares",
    "LogisticRegression",
    "LostTracks",
    "Ridge",
    "StructureFromMotion",
]
