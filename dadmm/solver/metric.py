"""Convex runs in coordinates z, theta = T z, which stop when their certificate holds.

In z the Hessian of the mean of all f_i is about the identity, see `docs/accuracy.md`.
Rows F_i have ``F_i' F_i`` as the Hessian of f_i. Of the factor of the rows of all
nodes, columns are scaled to length one, and T maps its singular directions to the unit
vectors. Directions that the data do not determine are dropped.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm

from dadmm.admm.loop import Run
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, by_row, row_lengths
from dadmm.solver import certificate as bounds
from dadmm.solver.certificate import certify, is_exact, pooled, pooled_axes
from dadmm.solver.kind import SolveKind, Statement

# singular values below this multiple of the largest, times p, count as zero: what is
# left of linearly dependent columns by rounding is less than half of it
LEAST = 4.0 * EPS
# smaller ones are raised to this multiple if T must be invertible; its square, the
# condition of the proximal step of an l1 penalty, must not reach double precision
LEAST_INVERTIBLE = 1e-6
MOST_CHANGE = 100.0  # of an eigenvalue, in one change of coordinates
MOST_LENGTH = 1e140  # of a column; the squares of T and of its inverse are finite
USUAL = 1e-3  # factor of rows at the usual start, if a run starts elsewhere
OPEN = 1e-8  # smallest component of a coefficient in a dropped direction that counts
LOOSE = 0.1  # tolerance at which coordinates are checked first, if curvature varies
FAR = 4.0  # eigenvalues of the Hessian beyond this, or below its inverse
MOST_CHANGES = 8
LEAST_TOLERANCE = 1e-11  # a tighter one is rounding
PATIENCE = 3  # reviews without a smaller bound, after which there will be none
SURE, LIKELY = 1e-9, -1e-2  # margins of a direction without minimum, over the largest
CHANGES_BEFORE = 4  # changes of coordinates before a minimum is doubted
NOT_EXACT = "the problem does not state that its proximal step is exact (exact = True)"


class Coordinates(NamedTuple):
    """The map from z (k,) to theta (p,), and what a run must know to change it."""

    map: Matrix  # (p, k) T
    inverse: Matrix  # (k, p), its left inverse
    is_open: Vector  # (p,) 1 if the data leave the coefficient open, else 0
    condition: Vector  # () largest over smallest singular value of the scaled columns
    n_open: Vector  # () directions that the data leave open; NaN if unknown
    quadratic: Vector  # () 1 if the curvature of all problems is constant, else 0
    exact: Vector  # () 1 if all problems give exact subgradients, else 0
    margins: Vector  # () 1 if all problems have margins, else 0
    last: Vector  # (p,) the solution at the last change of coordinates
    changes: Vector = np.array(0)  # () of coordinates so far
    best: Vector = np.array(np.inf)  # () least bound so far, over its limit
    without: Vector = np.array(0)  # () reviews that found no smaller bound

    def changed(
        self, values: Vector, axes: Matrix
    ) -> tuple[Coordinates, Matrix, Matrix]:
        """Return coordinates with a Hessian near one, given its eigenvectors in these.

        Also return factors (k, k) of rows of z, and of gradients.
        """
        root = np.sqrt(np.clip(values, 1.0 / MOST_CHANGE, MOST_CHANGE))
        primal, dual = axes * root, axes / root
        T = self.map @ dual
        scaled = np.linalg.svd(T / _lengths(T), compute_uv=False)
        inverse, condition = primal.T @ self.inverse, np.array(scaled[0] / scaled[-1])
        return self._replace(map=T, inverse=inverse, condition=condition), primal, dual


def _coordinates(n_nodes: int, factor: Matrix, facts: Vector) -> Matrix:
    """Return the coordinates of a whole factor (p, p) as columns, (p, 2 k + 6).

    They are NaN if they overflow. A number is in all rows of its column.
    """
    drops, quadratic = facts[:2]
    lengths = _lengths(factor.T)[:, 0]
    if not (1.0 / MOST_LENGTH <= lengths.min() <= lengths.max() <= MOST_LENGTH):
        return np.full((len(factor), 2 * len(factor) + 6), np.nan)
    _, values, axes = np.linalg.svd(factor / lengths)
    largest = values[0] or 1.0
    kept = values > LEAST * len(values) * largest
    is_open = row_lengths(axes[~kept].T) > OPEN
    if not drops or not kept.any():  # T must be invertible
        values = np.maximum(values, LEAST_INVERTIBLE * largest)
    else:
        values, axes = values[kept], axes[kept]
    values = values / math.sqrt(n_nodes)
    n_open, condition = float((~kept).sum()), values[0] / values[-1]
    if not drops and not quadratic:  # there may be curvature elsewhere
        n_open, is_open = math.nan, np.zeros(len(is_open), dtype=bool)
    T, inverse = (axes.T / lengths[:, None]) / values, values[:, None] * axes * lengths
    same = np.tile([condition, n_open, *facts[1:]], (len(T), 1))
    return np.column_stack([T, inverse.T, is_open, same])


def _lengths(rows: Matrix) -> Matrix:
    """Return the length of each row, (n, 1); 1 for a row of zeros."""
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    peaks[peaks == 0.0] = 1.0
    found = peaks * norm(rows / peaks, axis=1, keepdims=True)
    return np.where(found == 0.0, 1.0, found)


class MetricKind(SolveKind):
    """A convex run in the coordinates of the metric, which may change."""

    RECORD = Coordinates
    record: Coordinates
    certificate: bounds.Certificate | None = None  # of the last review
    centre = np.zeros(0)  # zbar of the last review
    no_minimum = ""  # why there is none, in words

    def choose(self, total: bounds.Total, n_nodes: int) -> None:
        rows, facts = [], []  # facts are 0 or 1; the least of all nodes counts
        for i, problem in self.problems.items():
            start = self.starts[i]
            drops = not getattr(problem, "needs_inverse", False)
            quadratic = getattr(problem, "quadratic", False)
            own = [drops, quadratic, is_exact(problem), hasattr(problem, "margins")]
            facts.append(np.array(own, dtype=np.float64))
            rows.append(problem.rows(start))
            usual = start if quadratic else problem.init(np.random.default_rng(0))
            if not np.array_equal(usual, start):
                # they show what is open if curvature vanishes at the start
                rows[-1] = np.vstack([rows[-1], USUAL * problem.rows(usual)])

        array = pooled(total, rows, partial(_coordinates, n_nodes), facts, np.minimum)
        k = (array.shape[1] - 6) // 2
        T, inverse, is_open, numbers = np.split(array, [k, 2 * k, 2 * k + 1], axis=1)
        if not np.isfinite(T).all():
            raise ProblemError(
                "a column of the data, with its penalty, is too large or too small; "
                "rescale it: its length over all nodes must be zero, or from "
                f"{1.0 / MOST_LENGTH:g} to {MOST_LENGTH:g}"
            )
        parts: list[Vector] = [T.copy(), inverse.T.copy(), is_open[:, 0].copy()]
        parts += [*map(np.array, numbers[0]), np.zeros(self.layout.size)]
        self.enter(Coordinates(*parts))

    def enter(self, record: Coordinates) -> None:
        self.tolerance = self.rule.tolerance  # what the certificate must reach
        self.curvature = dict.fromkeys(self.problems, 1.0)
        self._change_to(record)
        self.starts = {i: record.inverse @ own for i, own in self.starts.items()}
        if self.duals is not None:
            self.duals = {i: own @ record.map for i, own in self.duals.items()}

    def _change_to(self, coordinates: Coordinates) -> None:
        self.record = coordinates
        for i, problem in self.problems.items():
            self.within[i] = problem.within(coordinates.map)

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        return by_row(rows, self.record.inverse)

    def theta_of(self, rows: Matrix) -> Matrix:
        problem = next(iter(self.problems.values()))
        return np.asarray(problem.theta_of(self.record.map, rows))

    def adopt(self, run: Run) -> None:
        saved, before = run.state.coordinates, self.record.map
        if not saved:
            if not self.record.quadratic and run.stopping.rule.is_scaled:
                run.work.tolerance[...] = max(LOOSE, self.tolerance)
            self.save(run)
            return
        self.record = Coordinates(**saved)
        if not np.array_equal(self.record.map, before):
            self._change_to(self.record)
            run.local.adopt([self.within[i] for i in run.names.tolist()])

    def holds_at_start(self, run: Run) -> bool:
        # with a tolerance of 0, max_iter iterations are asked for
        if self.duals is None or self.tolerance == 0.0:
            return False
        run.edges.pull()  # the steps of the first iteration; nothing is sent
        run.local.solve()
        run.local.evaluate(0)
        centre = self.mean(run)
        found = self._has_no_minimum(run, centre)
        self.no_minimum = ""
        return not found and self._certify(run, centre)

    def verdict(self, t: int, run: Run) -> str:
        if not run.stopping.rule.is_scaled:
            return "converged"
        centre = self.mean(run)
        if self._has_no_minimum(run, centre):
            return "no_minimum"
        if self._changes_coordinates(t, run, centre):
            return ""
        if run.work.tolerance[0] > self.tolerance:
            run.stopping.reopen(self.tolerance)
            return ""
        return "converged" if self._certify(run, centre) or self._gives_up(run) else ""

    def _changes_coordinates(self, t: int, run: Run, centre: Vector) -> bool:
        """Change the coordinates if the Hessian is far from one; return whether."""
        if self.record.quadratic or self.record.changes >= MOST_CHANGES:
            return False
        rows = [problem.rows(centre) for problem in run.local.problems]
        lengths, axes = pooled_axes(run.total, rows, math.sqrt(run.topology.n_nodes))
        values = lengths**2  # of the Hessian of the mean of all f_i
        if values.min() >= 1.0 / FAR and values.max() <= FAR:
            return False
        last, changes = self.theta_of(centre[None])[0], self.record.changes + 1
        coordinates, primal, dual = self.record.changed(values, axes)
        self._change_to(coordinates._replace(last=last, changes=changes))
        within = [self.within[i] for i in run.names.tolist()]
        run.change_coordinates(t, within, primal, dual)
        self.save(run)
        run.stopping.reopen(max(float(run.work.tolerance[0]) / 3.0, self.tolerance))
        return True

    def _gives_up(self, run: Run) -> bool:
        """Continue with a tighter tolerance, or return True if that would not help."""
        assert self.certificate is not None
        now, shortfall = float(run.work.tolerance[0]), self.certificate.shortfall
        best = min(float(self.record.best), shortfall)
        without = 0 if shortfall < 0.5 * self.record.best else self.record.without + 1
        near = self.certificate.nominal_radius <= self.certificate.limit
        known = bool(np.isfinite(shortfall))
        # where the curvature does not settle there may be no minimum: go on to max_iter
        doubtful = self.record.margins and self.record.changes == MOST_CHANGES
        if known or not doubtful:
            if without >= PATIENCE and (near or known):
                return True
            if now <= LEAST_TOLERANCE or not self.record.exact:
                return True
        counts = {"best": np.array(best), "without": np.array(without)}
        self.record = self.record._replace(**counts)
        self.save(run)
        ratio = max(0.7 / shortfall, 0.01) if known else 0.1
        run.stopping.reopen(max(now * min(1.0 / 3.0, ratio), LEAST_TOLERANCE))
        return False

    def bounded(self, run: Run, said: Statement, centre: Vector) -> Statement:
        if not self.record.exact or self.no_minimum:
            return said._replace(why=self.no_minimum or NOT_EXACT)
        if self.certificate is None or not np.array_equal(centre, self.centre):
            self._certify(run, centre)
        found = self.certificate
        assert found is not None
        why = f"the bound on the error is {found.shortfall:.1e} times its limit"
        if self.record.changes == MOST_CHANGES:
            why = "the curvature does not settle; the objective may have no minimum"
        elif found.lightest < bounds.LIGHT:
            light = found.lightest
            why = f"the least row, by size or weight, is {light:.0e} of the largest"
        elif not np.isfinite(found.shortfall):
            why = "the curvature near the solution gives no bound on the error"
        return said._replace(certificate=found, why="" if found.holds else why)

    def mean(self, run: Run) -> Vector:
        """Return the mean over all nodes; nothing is private, and no facts are sent."""
        return np.asarray(run.total(list(run.state.theta)) / run.topology.n_nodes)

    def _certify(self, run: Run, centre: Vector) -> bool:
        """Set the certificate, and return whether it holds."""
        point, sizes = self.theta_of(centre[None])[0], []  # of the least and all rows
        for own, inner in zip(self.own(run), run.local.problems, strict=True):
            size = norm(inner.rows(centre))
            least = getattr(own, "lightest", 1.0) * size
            sizes.append([least if own.rows(point).any() else np.inf, -size])
        least, most = run.total(list(np.array(sizes)), np.minimum).tolist()
        light = float(min(least / -most, 1.0)) if most else 1.0
        self.certificate = certify(run, centre, self.tolerance, self.record, light)
        self.centre = centre
        return self.certificate.holds and bool(self.record.exact)

    def _has_no_minimum(self, run: Run, centre: Vector) -> bool:
        """Return whether the objective falls for ever along some direction."""
        if not self.record.margins:
            return False
        own, point = self.own(run), self.theta_of(centre[None])[0]

        def separates(theta: Vector, limit: float) -> bool:
            found = np.array([problem.margins(theta) for problem in own]) * [1.0, -1.0]
            least, largest = run.total(list(found), np.minimum).tolist()
            return bool(largest != 0.0 and least > limit * -largest)

        what = getattr(own[0], "separated", "the classes")
        if separates(point, SURE):
            self.no_minimum = f"{what} can be separated"
        elif self.record.changes >= CHANGES_BEFORE and separates(
            point - self.record.last, LIKELY
        ):
            self.no_minimum = f"{what} can most likely be separated"
        return self.no_minimum != ""
