"""The interface of problems."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import by_row


@runtime_checkable
class Problem(Protocol):
    """The objective f_i of one node over its own shard; it knows nothing of graphs.

    Notes
    -----
    A method ``neg_log_likelihood(theta)`` is optional: ``-log p(X_i | theta)``,
    equation (14), if f_i is its expected form with latent variables. The stopping rule
    "objective" judges it. The method of a stack takes (n, size) and returns (n,).
    """

    layout: Layout

    def init(self, rng: np.random.Generator) -> Vector:
        """Return starting parameters of shape (size,)."""

    def expect(self, theta: Vector) -> Any:
        """Return the statistics of the E-step at ``theta``, or None without E-step."""
        return None

    def prox(self, theta: Vector, stats: Any, centre: Vector, weight: float) -> Vector:
        """Return the argmin over x of ``f_i(x; stats) + weight/2 |x - centre|^2``.

        One sweep over blocks of parameters from ``theta`` is enough if it never raises
        this sum. If parts are private or scaled, the weight of each entry is
        ``weight * layout.pull``.
        """

    def objectives(self, thetas: Matrix, stats: Any) -> Vector:
        """Return ``f_i(.; stats)`` of each row of ``thetas`` (n, size), shape (n,)."""


def stacks(problem: type, method: str = "stack", *more: str) -> bool:
    """Return whether problems of a class can be stacked.

    They cannot if a subclass inherits `stack` but overrides a method that it replaces;
    so it is for ``within`` (`dadmm.solver.metric`) and ``neg_log_likelihood``. Some
    replace ``more`` methods.
    """
    owners = [kind for kind in problem.__mro__ if method in vars(kind)]
    names = ("expect", "prox", "objectives", *more)
    return bool(owners) and all(
        getattr(problem, name) is getattr(owners[0], name) for name in names
    )


@runtime_checkable
class TransformableProblem(Problem, Protocol):
    """A convex problem that can be solved in other coordinates z, theta = T z.

    Notes
    -----
    These members are optional. ``margins(theta)`` are the least and the largest margin
    of the rows: if the least margin of all nodes is positive, the sum of all f_i falls
    along ``theta`` for ever. ``separated`` is a str: what is separated then, "the
    classes" by default. A certificate needs subgradients: either ``exact`` is True,
    which states that `prox` is exact to rounding, or ``subgradient(theta, near)``
    returns a subgradient at theta, near to ``near``. ``l1`` (size,) are the weights of
    absolute values, and ``assumed`` is a str: what a certificate assumes.
    """

    convex: bool
    quadratic: bool  #: whether `rows` depends on neither argument
    needs_inverse: bool  #: whether T must be square and invertible

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return F (r, size), where F'F bounds the Hessian of f_i from below.

        The bound holds for the smooth part of f_i within ``radius`` of ``theta``. With
        radius 0, F'F only serves as the metric of the coordinates.
        """

    def within(self, T: Matrix) -> Problem:
        """Return f_i as a problem in z with layout ``z=(k,)``, given T (size, k).

        It has `rows`, ``convex`` and ``quadratic`` too.
        """

    def theta_of(self, T: Matrix, z: Vector) -> Vector:
        """Return theta = T z, shape (..., size), of ``z`` (..., k).

        Entries that `prox` sets to zero are exactly zero. A row has the same bits alone
        and among others.
        """
        return by_row(z, T.T)
