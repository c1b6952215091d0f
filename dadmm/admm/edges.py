"""The equations of the edges: proximal term, dual step and residuals.

Each edge has its own multiplier, so that it can change or fail without an effect on the
other edges. The paper's lambda_i (gamma_i, beta_i), one per node, is their sum.
"""

from __future__ import annotations

import numpy as np

from dadmm.admm.state import Nodes
from dadmm.comm.sending import Turn
from dadmm.core.layout import Matrix
from dadmm.core.linalg import row_lengths


class Edges:
    """A multiplier lambda_ij and an anchor z_ij per edge; alpha relaxes their steps."""

    def __init__(self, nodes: Nodes, alpha: float) -> None:
        state, work, incidence = nodes.state, nodes.work, nodes.incidence
        self.state, self.work, self.incidence = state, work, incidence
        self.alpha, self.direct = float(alpha), nodes.direct
        self._starts = nodes.layout.starts
        self._steps = np.empty((len(state.eta), 1))
        self._behind = np.zeros_like(work.shared)  # see `update_residuals`
        self._pull_behind = np.zeros_like(work.shared)
        self._twice = 2.0 * (incidence.degrees > 0)
        self._counts = incidence.count[:, None]
        # so that the mean penalty of a node without edges is 0
        self._divisors = np.where(incidence.degrees > 0, incidence.count, np.inf)
        self._totals = work.total[:, None]
        self._etas = state.eta[:, None]
        plan = incidence.reducer
        self._sum_eta = plan(np.add, state.eta, work.total)
        self.sum_multipliers = plan(np.add, state.multipliers, work.multiplier)
        self._sum_received = plan(np.add, state.received, work.mean)
        self._sum_squares = plan(np.add, work.scratch, work.difference)
        self._sum_squares_behind = plan(np.add, work.scratch, self._behind)
        self._weigh_anchors = plan(state.eta, state.anchors, work.centre)
        self._weigh_drift = plan(state.eta, work.drift, work.stationarity)
        self._weigh_lag = plan(state.eta, work.gap, self._pull_behind)
        self._five = work.vectors[: len(work.parts)]
        self._squares = np.empty_like(self._five)
        self._by_part = work.parts.transpose(0, 2, 1)
        self._alone = np.flatnonzero(incidence.degrees == 0)

    def update_mean(self) -> None:
        """Set the mean of the neighbours' theta; without neighbours, theta_i."""
        work = self.work
        self._sum_received()
        work.mean /= self._counts
        if len(self._alone):
            work.mean[self._alone] = work.shared[self._alone]

    def message(self, out: Matrix) -> None:
        """Write what each edge (E, m) sends: theta_i."""
        self.incidence.spread_into(self.work.shared, out)

    def pull(self) -> None:
        """Set the centre and weight of each node's proximal term.

        The centre is ``(sum_j eta_ij z_ij - lambda_i) / sum_j eta_ij`` and the weight
        ``2 sum_j eta_ij``, or 0 without neighbours. This completes the square in the
        M-step of the paper: the terms ``-2 gamma_i + sum_j eta_ij (mu_i + mu_j)`` and
        ``2 sum_j eta_ij`` of equation (15), for all parts of theta at once.
        """
        work = self.work
        self._sum_eta()
        self._weigh_anchors()
        work.centre -= work.multiplier
        work.centre /= self._totals
        np.multiply(work.total, self._twice, out=work.weight)

    def move(self, turn: Turn) -> None:
        """Take the dual step, the update of the multipliers, and move the anchors.

        ``lambda_ij <- lambda_ij + alpha/2 eta_ij (theta_i - theta_j)``: section 4.3 of
        the paper, below equation (15), one edge at a time. Both ends use the values
        that they have sent each other, so their multipliers are exactly opposite.

        ``z_ij <- alpha rho_ij + (1 - alpha) z_ij`` with the midpoint ``rho_ij =
        (theta_i + theta_j) / 2`` of equations (2) and (3) (Eckstein and Bertsekas,
        1992); in the paper alpha is 1.
        """
        state, work = self.state, self.work
        gap, midpoints = work.gap, work.midpoints
        np.subtract(state.sent, state.received, out=gap)
        np.add(state.sent, state.received, out=midpoints)
        midpoints *= 0.5
        np.subtract(midpoints, state.anchors, out=work.drift)
        # an edge that is not live does not move
        alpha = self.alpha if turn.live is None else (self.alpha * turn.live)[:, None]
        self._move_anchors(alpha)
        np.multiply(self._etas, 0.5 * alpha, out=self._steps)
        state.multipliers += np.multiply(gap, self._steps, out=work.scratch)

    def _move_anchors(self, alpha: float | Matrix) -> None:
        anchors, work = self.state.anchors, self.work
        if isinstance(alpha, float) and alpha == 1.0:
            anchors[...] = work.midpoints
        else:
            anchors *= 1.0 - alpha
            anchors += np.multiply(work.midpoints, alpha, out=work.scratch)

    def update_residuals(self, turn: Turn) -> None:
        """Set the residuals of the paper, and those that bound the error.

        Equation (5): ``r_i = theta_i - mean_i`` and ``s_i = eta_i (mean_i -
        mean_i_previous)``, where mean_i is the mean of the neighbours' theta and eta_i
        the mean of the node's penalties.

        ``stationarity`` is minus the gradient of the node's Lagrangian. After the
        proximal step, ``grad f_i(theta_i) + sum_j y_ij = -sum_j 2 eta_ij (rho_ij -
        z_ij)``, where ``y_ij = 2 lambda_ij`` after an unrelaxed step. The y_ij of an
        edge's two ends cancel, so over all nodes it sums to minus the gradient of the
        sum of all f_i.

        ``difference`` is the root mean square difference from the neighbours, by entry.
        ``lag`` is that from older or rounded copies of theta_i that the neighbours
        have, and is included in both.
        """
        state, work = self.state, self.work
        scratch = work.scratch
        self.sum_multipliers()
        work.mean_change[...] = work.mean
        self.update_mean()
        np.subtract(work.shared, work.mean, out=work.deviation)
        np.subtract(work.mean, work.mean_change, out=work.mean_change)
        self._weigh_drift()
        work.stationarity *= 2.0
        if self.direct:
            np.multiply(work.gap, work.gap, out=scratch)
        else:
            self.incidence.spread_into(work.shared, work.gap)
            work.gap -= state.sent
            self._weigh_lag()
            self._pull_behind *= 2.0
            work.stationarity += self._pull_behind
            np.multiply(work.gap, work.gap, out=scratch)
            self._sum_squares_behind()
            self._root_of_mean(self._behind)
            np.sqrt(np.vecdot(self._behind, self._behind), out=work.lag)
            self.incidence.spread_into(work.shared, scratch)
            scratch -= state.received
            scratch *= scratch
        self._sum_squares()
        self._root_of_mean(work.difference)
        self._measure_lengths(turn)

    def _root_of_mean(self, sums: Matrix) -> None:
        sums /= self._counts
        np.sqrt(sums, out=sums)

    def _measure_lengths(self, turn: Turn) -> None:
        """Set the lengths of the node vectors, whole and by part of theta."""
        work = self.work
        np.sqrt(np.vecdot(work.vectors, work.vectors), out=work.lengths)
        np.divide(work.total, self._divisors, out=work.eta_mean)
        if not turn.idle:
            work.primal[...] = work.lengths[5]
            np.multiply(work.eta_mean, work.lengths[6], out=work.dual)
        if not self.direct:
            work.difference += self._behind
        elif work.parts.shape[1] == 1:
            work.parts[:, 0] = work.lengths[: len(work.parts)]
            return
        np.multiply(self._five, self._five, out=self._squares)
        np.add.reduceat(self._squares, self._starts, 2, None, self._by_part)
        np.sqrt(work.parts, out=work.parts)

    def influence(self) -> np.ndarray:
        """Return a bound of how much each edge moved its two ends, (E,).

        It is ``eta_ij (|rho_ij - z_ij| + |theta_i - theta_j| / 2)`` at both ends.
        """
        state, work = self.state, self.work
        gap = np.subtract(state.sent, state.received, out=work.gap)
        moved = row_lengths(work.drift) + 0.5 * row_lengths(gap)
        return np.asarray(moved * state.eta)


class LossyEdges(Edges):
    """Edges that converge although payloads are dropped, also in one direction only.

    The anchor of an edge is c_ij, which is ``z_ij - lambda_ij / eta_ij`` as long as no
    payload is dropped. The multipliers stay zero.

    R-ADMM (Bastianello, Carli, Schenato and Todescato, arXiv 1901.09252): node i sends
    ``2 theta_i - c_ij``. The receiver sets ``c_ji <- (1 - alpha/2) c_ji + alpha/2 (2
    theta_i - c_ij)`` if the message arrives, and keeps c_ji if not.
    """

    def message(self, out: Matrix) -> None:
        np.multiply(self.incidence.spread(self.work.shared), 2.0, out=out)
        out -= self.state.anchors

    def move(self, turn: Turn) -> None:
        state, work = self.state, self.work
        np.add(state.anchors, state.received, out=work.midpoints)
        work.midpoints *= 0.5
        np.subtract(work.midpoints, state.anchors, out=work.drift)
        assert turn.arrived is not None
        self._move_anchors(self.alpha * turn.arrived[:, None])

    def update_residuals(self, turn: Turn) -> None:
        """Set the residuals by how far the anchors still have to move.

        Let ``d_ij = (q_ji - c_ij) / 2``, where q_ji is the last message of j. If each
        edge has got a message since its sender moved last, ``theta_i - theta_j = d_ji -
        d_ij``, and with ``y_ij = eta_ij (c_ji - c_ij)``, which cancel over an edge,
        ``grad f_i + sum_j y_ij = -sum_j 2 eta_ij d_ji``. So all nodes are near the
        optimum if all d are small. A node knows d_ij, and its neighbour d_ji.
        """
        work = self.work
        np.multiply(work.drift, work.drift, out=work.scratch)
        self._sum_squares()
        self._root_of_mean(work.difference)
        self._weigh_drift()
        work.stationarity *= 2.0
        self._measure_lengths(turn)
        work.primal[...], work.dual[...] = work.disagreement, np.nan
