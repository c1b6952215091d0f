"""When a run in chosen coordinates stops: when its certificate holds.

First the nodes meet the stopping rule, each by itself. Then sums over all nodes decide.
If curvature varies, as in logistic regression, the coordinates are checked at a loose
tolerance first, and changed if the Hessian is far from one. If the certificate does not
hold, the run continues with a tighter tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dadmm.admm.loop import Run
from dadmm.core.interfaces import TransformableProblem
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import by_row
from dadmm.solver.certificate import LIGHT, Certificate, certify
from dadmm.solver.coordinates import Coordinates, Total, find_coordinates, spectrum
from dadmm.solver.kind import SolveKind

LOOSE = 0.1  # tolerance at which coordinates are checked first
FAR = 4.0  # eigenvalues of the Hessian beyond this, or below its inverse
MOST_CHANGES = 8
LEAST_TOLERANCE = 1e-11  # a tighter one is rounding
PATIENCE = 3  # reviews without a smaller bound, after which there will be none
SURE, LIKELY = 1e-9, -1e-2  # margins of a direction without minimum, over the largest
CHANGES_BEFORE = 4  # changes of coordinates before a minimum is doubted
NOT_EXACT = (
    "the proximal step of the problem is not known to be exact; set exact = True if it "
    "is"
)


class MetricKind(SolveKind):
    """A convex run in the coordinates of the metric, which may change."""

    RECORD = Coordinates
    KEEPS_PARTS = False
    record: Coordinates

    def choose(self, total: Total, n_nodes: int) -> None:
        """Choose coordinates by the curvatures of all nodes at their starts."""
        starts = [self.starts[i] for i in self.problems]
        own = list(self.problems.values())
        self.enter(find_coordinates(total, own, starts, n_nodes))

    def enter(self, record: Coordinates) -> None:
        """Set what the run is made of, given the first coordinates."""
        self.tolerance = self.rule.tolerance  # what the certificate must reach
        self.rule = replace(self.rule, scaled=True)
        self.curvature = dict.fromkeys(self.problems, 1.0)
        self._change_to(record)
        self.starts = {i: record.inverse @ own for i, own in self.starts.items()}
        if self.duals is not None:
            self.duals = {i: own @ record.map for i, own in self.duals.items()}
        self.certificate: Certificate | None = None  # of the last review
        self.centre: Vector = np.zeros(0)  # zbar of the last review
        self.no_minimum = ""  # why there is none, in words
        self.changes = 0  # of coordinates
        self._last = np.zeros(self.layout.size)  # solution at the last change
        self._best = np.inf  # least bound so far, over its limit
        self._without = 0  # reviews that found no smaller bound

    def _change_to(self, coordinates: Coordinates) -> None:
        self.record = coordinates
        for i, problem in self.problems.items():
            self.within[i] = problem.within(coordinates.map)

    def _own_within(self, run: Run) -> Sequence[TransformableProblem]:
        return [self.within[i] for i in run.names.tolist()]

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        """Return rows of gradients (n, k) in the coordinates of the user, (n, p)."""
        return by_row(rows, self.record.inverse)

    def theta_of(self, rows: Matrix) -> Matrix:
        """Return rows of z (n, k) in the coordinates of the user, (n, p)."""
        first = next(iter(self.problems.values()))
        return np.asarray(first.theta_of(self.record.map, rows))

    def adopt(self, run: Run) -> None:
        """Use the saved coordinates, or save the coordinates of a new run."""
        saved = run.state.coordinates
        if not saved:
            if not self.record.quadratic and run.stopping.rule.is_scaled:
                run.work.tolerance[...] = max(LOOSE, self.tolerance)
            self._save(run)
            return
        found = Coordinates(*(saved[name] for name in Coordinates._fields))
        self.changes, self._last = int(saved["changes"]), saved["last"].copy()
        self._best, self._without = float(saved["best"]), int(saved["without"])
        if not np.array_equal(found.map, self.record.map):
            self._change_to(found)
            run.local.adopt(self._own_within(run))

    def _save(self, run: Run) -> None:
        best, without = self._best, self._without
        self.save(
            run, changes=self.changes, last=self._last, best=best, without=without
        )

    def holds_at_start(self, run: Run) -> bool:
        """Return whether the certificate holds before the first iteration."""
        if self.tolerance == 0.0:  # max_iter iterations are asked for
            return False
        run.edges.pull()  # the steps of the first iteration; nothing is sent
        run.local.solve()
        run.local.evaluate(0)
        centre = self.mean(run)
        found = self._has_no_minimum(run, centre)
        self.no_minimum = ""
        return not found and self._certify(run, centre)

    def verdict(self, t: int, run: Run) -> str:
        """Return a reason to stop after iteration ``t``, or ""."""
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
        """Change the coordinates if the Hessian is far from one; return whether so."""
        if self.record.quadratic or self.changes >= MOST_CHANGES:
            return False
        rows = [problem.rows(centre) for problem in self._own_within(run)]
        values, axes = spectrum(run.total, rows, run.topology.n_nodes)
        if values.min() >= 1.0 / FAR and values.max() <= FAR:
            return False
        self.changes, self._last = self.changes + 1, self.theta_of(centre[None])[0]
        coordinates, primal, dual = self.record.changed(values, axes)
        self._change_to(coordinates)
        run.change_coordinates(t, self._own_within(run), primal, dual)
        self._save(run)
        run.stopping.reopen(max(float(run.work.tolerance[0]) / 3.0, self.tolerance))
        return True

    def _gives_up(self, run: Run) -> bool:
        """Continue with a tighter tolerance, or return True if that would not help."""
        assert self.certificate is not None
        now, shortfall = float(run.work.tolerance[0]), self.certificate.shortfall
        self._without = 0 if shortfall < 0.5 * self._best else self._without + 1
        self._best = min(self._best, shortfall)
        near = self.certificate.nominal_radius <= self.certificate.limit
        known = bool(np.isfinite(shortfall))
        # where the curvature does not settle there may be no minimum: go on to max_iter
        doubtful = self.record.margins and self.changes == MOST_CHANGES
        if known or not doubtful:
            if self._without >= PATIENCE and (near or known):
                return True
            if now <= LEAST_TOLERANCE or not self.record.exact:
                return True
        self._save(run)
        ratio = max(0.7 / shortfall, 0.01) if known else 0.1
        run.stopping.reopen(max(now * min(1.0 / 3.0, ratio), LEAST_TOLERANCE))
        return False

    def bound_error(self, run: Run, centre: Vector) -> tuple[Certificate | None, str]:
        """Return the certificate; there is none without subgradients."""
        if not self.record.exact or self.no_minimum:
            return None, self.no_minimum or NOT_EXACT
        if self.certificate is None or not np.array_equal(centre, self.centre):
            self._certify(run, centre)
        found = self.certificate
        assert found is not None
        why = f"the bound on the error is {found.shortfall:.1e} times its limit"
        if self.changes == MOST_CHANGES:
            why = "the curvature does not settle; the objective may have no minimum"
        elif found.lightest < LIGHT:
            least = f"{found.lightest:.0e}"
            why = f"the least row, by size or weight, is {least} of the largest"
        elif not np.isfinite(found.shortfall):
            why = "the curvature near the solution gives no bound on the error"
        return found, "" if found.holds else why

    def mean(self, run: Run) -> Vector:
        """Return the mean over all nodes; nothing is private."""
        total: Vector = run.total(list(run.state.theta))
        return total / run.topology.n_nodes

    def _certify(self, run: Run, centre: Vector) -> bool:
        light = self._lightest(run, centre)
        self.certificate = certify(run, centre, self.tolerance, self.record, light)
        self.centre = centre
        return self.certificate.holds and bool(self.record.exact)

    def _lightest(self, run: Run, centre: Vector) -> float:
        """Return the size of the least row over the largest row, about."""
        point, found = self.theta_of(centre[None])[0], []
        for own, within in zip(self.own(run), self._own_within(run), strict=True):
            size = np.linalg.norm(within.rows(centre))
            least = getattr(own, "lightest", 1.0) * size
            found.append([least if own.rows(point).any() else np.inf, -size])
        least, most = run.total(list(np.array(found)), np.minimum).tolist()
        return float(min(least / -most, 1.0)) if most else 1.0

    def _has_no_minimum(self, run: Run, centre: Vector) -> bool:
        """Return whether the objective falls for ever along some direction."""
        if not self.record.margins:
            return False
        own, point = self.own(run), self.theta_of(centre[None])[0]

        def separates(theta: Vector, limit: float) -> bool:
            found = np.array([problem.margins(theta) for problem in own]) * [1.0, -1.0]
            least, largest = run.total(list(found), np.minimum).tolist()
            return bool(largest != 0.0 and least > limit * -largest)

        sure = separates(point, SURE)
        if not sure and (
            self.changes < CHANGES_BEFORE or not separates(point - self._last, LIKELY)
        ):
            return False
        what = getattr(own[0], "separated", "the classes")
        self.no_minimum = f"{what} can {'' if sure else 'most likely '}be separated"
        return True
