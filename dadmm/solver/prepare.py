"""The choice of coordinates and start before a run, by sums over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dadmm.admm.loop import Callback, Review
from dadmm.admm.rule import Rule, Scales
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.exchange.tree import TreeReduction
from dadmm.graphs.topology import Topology
from dadmm.solver import merged as merging
from dadmm.solver import units
from dadmm.solver.coordinates import Coordinates, Total, merged
from dadmm.solver.metric import MetricReview
from dadmm.solver.plan import Kind
from dadmm.solver.random_start import RandomReview
from dadmm.solver.raw import GradientReview, ModelReview


class Prepared(NamedTuple):
    """What a run is made of, before and after its coordinates are chosen.

    Dicts are by node. ``starts`` is None if merged axes are to give them, and ``sent``
    has the messages and bytes that were sent, by edge.
    """

    problems: Mapping[int, Problem]
    starts: Mapping[int, Vector] | None
    duals: Mapping[int, Vector] | None
    rule: Rule
    review: Review | None = None
    scales: Mapping[int, Matrix] | Callable[[np.ndarray], Scales] | None = None
    curvature: Mapping[int, float] | None = None
    callbacks: tuple[Callback, ...] = ()
    sent: np.ndarray | None = None


Saved = Mapping[str, np.ndarray] | None  # coordinates of a run that is resumed


def find_metric(
    given: Prepared, topology: Topology, comm: Any, saved: Saved
) -> Prepared:
    """Return a convex run in the coordinates of the metric."""
    hosted, starts = given.problems, given.starts or {}
    sent = None
    if saved:
        found = Coordinates(*(saved[name] for name in Coordinates._fields))
        p, k = len(next(iter(starts.values()))), found.map.shape[-1]
        shapes = [(p, k), (k, p), (p,), *[()] * (len(found) - 3)]
        if [part.shape for part in found] != shapes:
            raise ValueError("coordinates have other shapes")
    else:
        with _sums(hosted, topology, comm) as (total, sent):
            order = [starts[i] for i in hosted]
            found = merged(total, list(hosted.values()), order, topology.n_nodes)
    review = MetricReview(hosted, found, given.rule.tolerance)
    return given._replace(
        problems=review.within, starts=review.starts(starts),
        duals=None if given.duals is None else review.duals(given.duals),
        rule=replace(given.rule, scaled=True), review=review,
        curvature=dict.fromkeys(hosted, 1.0), sent=sent,
    )  # fmt: skip


def find_units(
    given: Prepared, topology: Topology, comm: Any, saved: Saved
) -> Prepared:
    """Return a run of PPCA in the mean and unit of all rows.

    It starts from drawn parameters, or from those and the duals of another run.
    """
    hosted, sent = given.problems, None
    if saved:
        found = units.Units(*(saved[name] for name in units.Units._fields))
    else:
        with _sums(hosted, topology, comm) as (total, sent):
            found = units.measure(total, hosted)
    review = RandomReview(hosted, found)
    made = _in_units(given, review, sent)._replace(callbacks=(review.turn,))
    starts, duals = given.starts or {}, given.duals
    if duals is None:
        return made._replace(starts=review.starts(starts))
    inside = review.inside(starts)
    return made._replace(starts=inside, duals=review.duals(duals, inside))


def merge_axes(
    given: Prepared, topology: Topology, comm: Any, saved: Saved
) -> Prepared:
    """Return a run of PPCA from merged axes.

    A run that is resumed has its multipliers, so it has no duals here.
    """
    hosted, duals, sent = given.problems, None, None
    if saved:
        start = merging.Start(*(saved[name] for name in merging.Start._fields))
        review = merging.MergedReview(hosted, start)
    else:
        with _sums(hosted, topology, comm) as (total, sent):
            review, duals = merging.merge(total, hosted)
    made = _in_units(given, review, sent)
    return made._replace(starts=review.starts, duals=duals)


def _in_units(given: Prepared, review: Any, sent: np.ndarray | None) -> Prepared:
    """Return a run in the coordinates of a review."""
    return given._replace(
        problems=review.within, rule=replace(given.rule, scaled=True), review=review,
        scales=review.scales, curvature=review.curvature, sent=sent,
    )  # fmt: skip


def check_gradients(
    given: Prepared, topology: Topology, comm: Any, saved: Saved
) -> Prepared:
    """Return a run in the coordinates of the user that ends when gradients are small.

    It ends by its stopping rule alone if some problem is convex or has no gradient.
    """
    least = min(map(_judged_by, given.problems.values()))
    if comm is not None:
        from dadmm.exchange.collectives import least_of_all

        least = least_of_all(comm, least)
    if not least:
        return given
    if least == 1:
        return given._replace(review=GradientReview(given.problems))
    review = ModelReview(given.problems)
    rule = replace(given.rule, scaled=True)
    return given._replace(review=review, rule=rule, scales=review.scales)


def _judged_by(problem: Any) -> int:
    """Return 2 if a problem is PPCA, 1 if it has a gradient and is not convex.

    The latter is judged by lengths, the former by relative errors of its model.
    """
    if getattr(problem, "convex", False) or not hasattr(problem, "gradient"):
        return 0
    return 1 + (hasattr(problem, "moment") and not problem.layout.scales)


PREPARE = {
    Kind.RAW: check_gradients,
    Kind.METRIC: find_metric,
    Kind.UNITS: find_units,
    Kind.MERGED: merge_axes,
}


@contextmanager
def _sums(
    hosted: Iterable[int], topology: Topology, comm: Any
) -> Iterator[tuple[Total, np.ndarray]]:
    """Yield a function that sums over all nodes, and what was sent by edge."""
    private = None
    if comm is not None:
        from dadmm.exchange.collectives import wait_sleeping

        private, request = comm.Idup()
        wait_sleeping(request)
    tree = TreeReduction(topology, private)

    def total(rows: Sequence[Any], merge: Any = np.add, finish: Any = None) -> Any:
        return tree.reduce(dict(zip(hosted, rows, strict=True)), merge, finish)

    yield total, tree.sent
    if private is not None:
        private.Free()
