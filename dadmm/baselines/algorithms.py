"""The recursions of other algorithms, for all nodes of a process at once.

Rows of the arrays are nodes. ``W`` has the Metropolis weights of the graph, and the
mixed rows ``W x`` come from messages to neighbours only. In W. Shi, Q. Ling, G. Wu and
W. Yin (EXTRA, SIAM J. Optim. 25, 2015) and in the other papers, f_i is the objective of
node i, which is the smooth s_i plus r_i, the absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dadmm.core import schema
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import triangular

if TYPE_CHECKING:
    from dadmm.baselines.run import BaselineRun

POSITIVE = schema.number("positive and finite", lambda x: 0 < x < np.inf)


@dataclass
class Algorithm:
    """The base of all algorithms.

    Parameters
    ----------
    step : float
        Length of a gradient step, in units of 1 / L, where L is the largest curvature
        of a node's objective at the start.

    Examples
    --------
    Decentralised gradient descent, which ends near the optimum but not there:

    >>> import dadmm
    >>> class Descent(dadmm.baselines.Algorithm):
    ...     def update(self, mixed):
    ...         self.x = mixed - self.length * self.run.gradient(self.x)
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> ring = dadmm.Topology.ring(6)
    >>> run = dadmm.baselines.solve(problems, ring, Descent(0.1), max_iter=500)
    >>> off = abs(run.theta - dadmm.solve(problems, ring).solution).max()
    >>> bool(1e-6 < off < 0.1)
    True
    """

    step: float = schema.entry(1.0, POSITIVE)

    width: ClassVar[int] = 1  # numbers in a message for each parameter; 0 sends none
    has_prox: ClassVar[bool] = False  # whether f_i may have absolute values
    needs_gradient: ClassVar[bool] = True
    uses_tree: ClassVar[bool] = False  # whether it adds up over a spanning tree
    allows_schedule: ClassVar[bool] = False  # whether edges may come and go

    def __post_init__(self) -> None:
        schema.check_fields(self)

    def start(self, run: BaselineRun) -> None:
        """Take the nodes of this process; set ``x`` to their estimates."""
        self.run, self.length = run, self.step / run.curvature
        self.x: Matrix = run.start  # (n, m)

    def message(self) -> Matrix:
        """Return what each node sends to its neighbours, (n, width m)."""
        return self.x

    def update(self, mixed: Matrix) -> None:
        """Set ``x`` to the next estimates, given ``W message``."""
        raise NotImplementedError(f"{type(self).__name__} needs a method update")


@dataclass
class EXTRA(Algorithm):
    """EXTRA, and with absolute values PG-EXTRA (Shi, Ling, Wu and Yin, 2015)."""

    step: float = 0.5
    has_prox = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        self._last: tuple[Matrix, Matrix] | None = None  # x + W x, gradient

    def update(self, mixed: Matrix) -> None:
        slope = self.run.gradient(self.x)
        if self._last is None:
            self._z = mixed - self.length * slope
        else:
            both, before = self._last
            self._z = self._z + mixed - 0.5 * both - self.length * (slope - before)
        self._last = self.x + mixed, slope
        self.x = self.run.prox(self._z, self.length)


@dataclass
class NIDS(Algorithm):
    """NIDS with one step length (Li, Shi and Yan, IEEE Trans. Signal Process. 2019)."""

    has_prox = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        self._before, self._slope = self.x, run.gradient(self.x)
        self._z = self.x - self.length * self._slope
        self.x = run.prox(self._z, self.length)

    def message(self) -> Matrix:
        """Return ``2 x - x_before + length (gradient before - gradient)``."""
        slope = self.run.gradient(self.x)
        change = self.length * (self._slope - slope)
        self._sent = 2.0 * self.x - self._before + change
        self._before, self._slope = self.x, slope
        return self._sent

    def update(self, mixed: Matrix) -> None:
        self._z = self._z - self.x + 0.5 * (self._sent + mixed)
        self.x = self.run.prox(self._z, self.length)


@dataclass
class DIGing(Algorithm):
    """Gradient tracking (Nedic, Olshevsky and Shi, SIAM J. Optim. 27, 2017)."""

    step: float = 0.2
    width = 2
    allows_schedule = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        self._y = self._slope = run.gradient(self.x)

    def message(self) -> Matrix:
        """Return the estimates beside the tracked gradients."""
        return np.hstack([self.x, self._y])

    def update(self, mixed: Matrix) -> None:
        x, y = np.hsplit(mixed, 2)
        self.x = x - self.length * self._y
        slope = self.run.gradient(self.x)
        self._y, self._slope = y + slope - self._slope, slope


@dataclass
class AllReduce(Algorithm):
    """Gradient descent for the sum of all f_i; a spanning tree adds up the gradients.

    Each iteration sends a gradient along each edge of the tree, up and down.
    """

    width = 0
    has_prox = True
    uses_tree = True

    def start(self, run: BaselineRun) -> None:
        super().start(run)
        n = run.topology.n_nodes
        self.x = np.tile(run.total(self.x) / n, (len(self.x), 1))
        self._l1: Vector = run.total(run.l1) / n if run.l1.any() else run.l1[0]

    def update(self, mixed: Matrix) -> None:
        slope = self.run.total(self.run.gradient(self.x)) / self.run.topology.n_nodes
        self.x = shrink(self.x - self.length * slope, self.length * self._l1)


@dataclass
class OneSum(Algorithm):
    """The normal equations of all nodes, merged once; the exact solution."""

    width = 0
    needs_gradient = False
    uses_tree = True

    def update(self, mixed: Matrix) -> None:
        if self.run.t > 1:
            return
        own = [np.column_stack(problem.equations) for problem in self.run.problems]
        found = self.run.total(
            [triangular(rows) for rows in own],
            lambda a, b: triangular(np.vstack([a, b])),
            lambda rows: np.linalg.lstsq(rows[:, :-1], rows[:, -1])[0],
        )
        self.x = np.tile(found, (len(self.x), 1))


def shrink(points: Matrix, by: Matrix | Vector) -> Matrix:
    """Return the proximal step of absolute values: entries moved towards zero."""
    return np.asarray(np.sign(points) * np.maximum(np.abs(points) - by, 0.0))


ALGORITHMS: dict[str, type[Algorithm]] = {
    "extra": EXTRA,
    "nids": NIDS,
    "diging": DIGing,
    "allreduce": AllReduce,
    "one_sum": OneSum,
}
