"""The local problems of a process: proximal steps, objectives, first penalties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.state import Nodes
from dadmm.core.errors import ProblemError, shown
from dadmm.core.interfaces import Problem, stacks
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.core.linalg import row_lengths
from dadmm.graphs.measures import common_neighbours, slowness
from dadmm.graphs.topology import Integers, Topology

NAMED = 20  # nodes at most in an error message
BREAKDOWNS = (np.linalg.LinAlgError, ZeroDivisionError)
knows_likelihood = partial(stacks, method="neg_log_likelihood")
Rows = int | slice | Integers


class Block(NamedTuple):
    """Nodes whose problems are stacked into one, or a single node."""

    rows: Rows  # of these nodes: a slice or indices; an int for a single node
    problem: Problem
    edges: Rows  # of these nodes: a slice or indices
    trial: Array  # (nodes, 1 + degree, size), or (1 + degree, size) for one node


class Local:
    """Proximal steps and objectives; problems of one kind are stacked into one call.

    A problem has the same bits alone. ``probe`` is where f_i is also evaluated for each
    edge: nowhere (""), at rho_ij ("midpoint") or at theta_j ("neighbour").
    """

    def __init__(self, nodes: Nodes, problems: Sequence[Problem], probe: str) -> None:
        self.state, self.work, self.nodes = nodes.state, nodes.work, nodes.names
        self.incidence, self.probe = nodes.incidence, probe
        self._neighbours = nodes.names_of_all[nodes.topology.indices[nodes.arcs]]
        self.adopt(problems)

    def adopt(self, problems: Sequence[Any]) -> None:
        """Stack problems, one per row, of one kind and, for probes, of one degree."""
        self.problems, self.layout = problems, problems[0].layout
        self.blocks: list[Block] = []
        offsets = self.incidence.offsets
        can_stack = {kind: stacks(kind) for kind in set(map(type, problems))}
        degrees = (self.incidence.degrees * bool(self.probe)).tolist()
        groups: dict[tuple[type, object, int], list[int]] = {}
        for row, problem in enumerate(problems):
            cls, kind = type(problem), getattr(problem, "kind", None)
            alike = kind if can_stack[cls] else ("alone", row)
            groups.setdefault((cls, alike, degrees[row]), []).append(row)
        make: Any
        for (make, _, degree), nodes in groups.items():
            trial = np.empty((len(nodes), 1 + degree, self.layout.size))
            rows: Rows = np.array(nodes)
            edges: Rows = (offsets[rows][:, None] + np.arange(degree)).ravel()
            first, last = nodes[0], nodes[-1]
            if last - first + 1 == len(nodes):
                rows, begin = slice(first, last + 1), int(offsets[first])
                edges = slice(begin, begin + degree * len(nodes))
            if len(nodes) == 1:
                self.blocks.append(Block(first, problems[first], edges, trial[0]))
            else:
                whole = make.stack([problems[row] for row in nodes])
                self.blocks.append(Block(rows, whole, edges, trial))
        self.has_likelihood = any(map(knows_likelihood, can_stack))

    def solve(self) -> None:
        """Set theta_i to the argmin of ``f_i(x) + weight_i/2 |x - centre_i|^2``."""
        state, work = self.state, self.work
        theta, centre = state.theta, self.layout.whole(work.centre, state.theta)
        self._stats: list[object] = []
        new = np.empty_like(theta)  # a problem may keep the arrays that it has seen
        for block in self.blocks:
            rows, own = block.rows, theta[block.rows]
            stats = self._ask(block, "expect", own)
            found = self._ask(
                block, "prox", own, stats, centre[rows], work.weight[rows]
            )
            self._stats.append(stats)
            new[rows] = as_numbers(found, own.shape, "prox")
        state.theta = new
        work.shared[...] = self.layout.shared(new)

    def evaluate(self, t: int) -> None:
        """Set f_i(theta_i), and f_i at the probe of each edge."""
        state, work = self.state, self.work
        probes = work.midpoints if self.probe == "midpoint" else state.received
        for block, stats in zip(self.blocks, self._stats, strict=True):
            trial, theta = block.trial, state.theta[block.rows]
            trial[..., 0, :] = theta
            if self.probe:
                shape = *trial[..., 1:, 0].shape, probes.shape[1]
                rows = probes[block.edges].reshape(shape)
                trial[..., 1:, :] = self.layout.whole(rows, theta[..., None, :])
            found = self._ask(block, "objectives", trial, stats)
            found = as_numbers(found, trial.shape[:-1], "objectives")
            work.objective[block.rows] = found[..., 0]
            if self.probe:
                work.probes[block.edges] = found[..., 1:].ravel()
        if math.isfinite(np.add.reduce(work.objective)):
            return
        bad = np.flatnonzero(~np.isfinite(work.objective))
        if not len(bad):
            raise ProblemError("the sum of the objectives overflows; rescale the data")
        row = bad[self.nodes[bad].argmin()]
        raise ProblemError(
            f"node {self.nodes[row]}: the objective is {work.objective[row]} in "
            f"iteration {t}; the local problem has no finite minimum here (are the "
            "data free of noise, or the penalty far too small?), or its numbers "
            "overflow; rescale columns with very large entries"
        )

    def likelihoods(self) -> Vector:
        """Return equation (14), ``-log p(X_i | theta_i)``, or f_i if not known."""
        theta, values = self.state.theta, self.work.objective.copy()
        for block in self.blocks:
            if knows_likelihood(type(block.problem)):
                rows, method = theta[block.rows], "neg_log_likelihood"
                found = self._ask(block, method, rows)
                values[block.rows] = as_numbers(found, rows.shape[:-1], method)
        return values

    def values_at(self, theta: Matrix) -> Vector:
        """Return f_i at a row of ``theta`` (n, size) each, shape (n,)."""
        values = np.empty(len(self.nodes))
        for block in self.blocks:
            rows, problem = theta[block.rows], block.problem
            found = problem.objectives(rows[..., None, :], problem.expect(rows))
            found = as_numbers(found, rows[..., :1].shape, "objectives")
            values[block.rows] = found[..., 0]
        return values

    def curvatures(self) -> Vector:
        """Return the curvature of each f_i at theta_i, (n,), NaN if it breaks down."""
        theta, found = self.state.theta, np.full(len(self.problems), np.nan)
        for block in self.blocks:
            rows = np.atleast_1d(np.arange(len(found))[block.rows])
            try:
                found[rows] = curvatures(block.problem, theta[block.rows])
            except BREAKDOWNS:
                for row in rows:  # the others of a stack may have one
                    with suppress(*BREAKDOWNS):
                        found[row] = curvatures(self.problems[row], theta[row])[0]
        return found

    def _ask(self, block: Block, method: str, *given: object) -> Any:
        try:
            return getattr(block.problem, method)(*given)
        except BREAKDOWNS as error:
            theta, received = self.state.theta, self.state.received
            known = np.isfinite(received).all(axis=1)
            if np.isfinite(theta).all() and not known.all():
                raise ProblemError(
                    f"node {self._neighbours[known.argmin()]} has sent numbers that "
                    "are not finite; check its data and its local problem"
                ) from error
            nodes = sorted(np.atleast_1d(self.nodes[block.rows]).tolist())
            names = ", ".join(map(str, nodes[:NAMED])) + ", ..." * (len(nodes) > NAMED)
            raise ProblemError(
                f"the local problem of node {names} broke down ({error}); check that "
                "it has at least two samples, and that they differ"
            ) from error


def as_numbers(found: object, shape: tuple[int, ...], method: str) -> Array:
    """Return what a method of a problem has returned, as floats of that shape."""
    try:  # "same_kind", as numpy would cut complex numbers to their real parts
        array = np.asarray(found).astype(np.float64, casting="same_kind", copy=False)
    except (TypeError, ValueError):
        array = np.empty(())
    if array.shape == shape:
        return array
    got = f"shape {array.shape}" if array.ndim else shown(found)
    raise ProblemError(
        f"{method} of a problem must return real numbers of shape {shape}, got {got}"
    )


# Proximal steps that measure the curvature
LIGHT = 0.1  # weight over curvature, so that steps end near a minimum
STEPS = 5  # proximal steps at most
FIRST, SECOND = 1.0, 1e6  # their first weights
FLATTER, LIGHTER, STIFFER = 1e-18, 1e-2, 1e6  # factors of weights that find nothing
FINE = 1e-10  # shorter moves, relative to theta, have too large errors of rounding
ROUNDING = 1e-14  # and so have gradients that differ by less, relative to their sizes


def edge_factors(topology: Topology, arcs: np.ndarray) -> Vector:
    """Return the first penalty of each of these directed edges, over the curvature.

    For equal curvature h at all nodes of a regular graph, the best constant penalty is
    near ``h / (2 degree sqrt(1 - s^2))``, with the second eigenvalue s of the random
    walk (Ghadimi, Teixeira, Shames and Johansson, 2015). An edge (i, j) gets ``h R_ij /
    (4 sqrt(1 - s^2))``, where ``R_ij = 1 / (1 + c_ij / 2)``, with c_ij common
    neighbours, bounds its effective resistance; exactly on trees and complete graphs.
    """
    resistance = 1.0 / (1.0 + 0.5 * common_neighbours(topology, arcs))
    return np.asarray(0.25 * slowness(topology) * resistance)


def curvatures(problem: Any, theta: Array) -> Vector:
    """Return the curvature of f_i where it descends from ``theta``, (1,).

    Of a stack of problems it is that of each, (n,), and ``theta`` is (n, size).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends. It is NaN if it cannot be estimated, as where ``theta`` is optimal.

    The last two weights are about a tenth and a fifth of the curvature, so that a
    curvature that varies is measured near the minimum of f_i, in any units. A smaller
    weight fails if f_i has no minimum.
    """
    is_stack, stats = theta.ndim > 1, problem.expect(theta)
    start: Matrix = np.atleast_2d(problem.layout.shared(theta))

    def end_of_step(weight: Vector) -> Matrix:
        # copies, because a problem may work in place, or in arrays of its own
        given = theta.copy(), stats, theta.copy(), weight if is_stack else weight[0]
        found = as_numbers(problem.prox(*given), theta.shape, "prox").copy()
        return np.atleast_2d(problem.layout.shared(found))

    n = len(start)
    last, weight = np.full(n, FIRST), np.full(n, SECOND)
    before, end = end_of_step(last), end_of_step(weight)
    found = np.full(n, np.nan)
    for k in range(2, STEPS + 1):
        to_before, to_end = start - before, start - end
        size = np.max([row_lengths(rows) for rows in (start, before, end)], axis=0)
        apart = row_lengths(end - before)
        change = row_lengths(to_end * weight[:, None] - to_before * last[:, None])
        fine = (apart > FINE * size) & (change > ROUNDING * (weight + last) * size)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(fine, change / apart, found)
        if k == STEPS:
            break
        before_moved = row_lengths(to_before) > FINE * size
        end_moved = row_lengths(to_end) > FINE * size
        keep = ~fine & before_moved & ~end_moved
        other = np.where(before_moved & end_moved, STIFFER, FLATTER) * weight
        other = np.where(keep, LIGHTER * last, other)
        other = np.where(end_moved & ~before_moved, LIGHTER * weight, other)
        last = np.where(keep, last, weight)
        before = np.where(keep[:, None], before, end)
        weight = np.where(fine, LIGHT * found * (1.0 + k % 2), other)
        end = end_of_step(weight)
    return found
