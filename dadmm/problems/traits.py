"""What other rooms need to know of a problem class, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dadmm.data.datasets import regression


class Traits(NamedTuple):
    """Facts about a problem class; a class of `PROBLEMS` has them as ``traits``."""

    predicts: str | None = None  # "regression", "classification", "counts", "subspace"
    has_errors: bool = False  # whether coefficients have standard errors if alpha is 0
    draw: Callable[..., Any] = regression  # synthetic X and y
    adds: str = ""  # what it sends at checks, beside parameters, gradients, objectives
    sends: str = "the parameters"  # the words for theta
    title: str = ""  # in figures; else the name of the problem
    tracks: bool = False  # whether the data are tracks of cameras, and not a table
    components: int = 5  # usual dimension of a subspace
    nodes: int = 20  # usual number of nodes, as in the paper
