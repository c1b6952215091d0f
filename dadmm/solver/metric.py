"""The choice of coordinates and start before a run, by sums over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from dadmm import penalty
from dadmm.accuracy import merged as merging
from dadmm.accuracy import units
from dadmm.accuracy.coordinates import (
    MOST_COLUMNS,
    Coordinates,
    Total,
    merged,
    supports,
)
from dadmm.accuracy.gradient import GradientReview, ModelReview
from dadmm.accuracy.random_start import RandomReview
from dadmm.accuracy.review import MetricReview
from dadmm.admm.loop import Callback, Review
from dadmm.admm.rule import Rule, Scales
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.exchange.tree import TreeReduction
from dadmm.graphs.topology import Topology
from dadmm.penalty import Scheme
from dadmm.penalty.beyond import Bounded, Steady
from dadmm.problems.ppca import PPCA
from dadmm.solver.statement import NO_SUMS

UNLESS = 'has no metric unless metric = "full"'


def why_none(metric: str | None, scheme: Scheme, problems: Iterable[Problem]) -> str:
    """Return why a run has no metric; "" if it has one."""
    if metric == "none":
        return NO_SUMS
    for problem in problems:
        if not supports(problem):
            return _why_no_coordinates(problem)
        size = problem.layout.size
        if metric is None and size > MOST_COLUMNS:
            return f"a run with {size} parameters, more than {MOST_COLUMNS}, {UNLESS}"
    if metric is None and not isinstance(scheme, penalty.Auto):
        return f"the scheme {penalty.name_of(scheme)} {UNLESS}"
    return ""


def _why_no_coordinates(problem: Problem) -> str:
    name, layout = type(problem).__name__, problem.layout
    if not hasattr(problem, "rows") or not hasattr(problem, "within"):
        return f"the problem {name} has no methods rows and within"
    if layout.private or layout.scales:
        return f"the problem {name} has private or scaled parts"
    return f"the class {name} overrides prox, expect or objectives, but not within"


class Prepared(NamedTuple):
    """What a run is made of, before and after its coordinates are chosen.

    Dicts are by node. ``starts`` is None if merged axes are to give them, and ``sent``
    has the messages and bytes that were sent, by edge.
    """

    problems: Mapping[int, Problem]
    starts: Mapping[int, Vector] | None
    duals: Mapping[int, Vector] | None
    scheme: Scheme
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
        rule=replace(given.rule, scaled=True), review=review, sent=sent,
    )  # fmt: skip


def why_not_merged(hosted: Mapping[int, Problem], comm: Any) -> str:
    """Return why a run cannot start from merged axes, the same on all ranks."""
    can = _all(map(merging.supports, hosted.values()), comm)
    return "" if can else "this start is for PPCA and structure from motion"


def has_units(
    init: str | Matrix, why: str, scheme: Scheme, hosted: Mapping[int, Problem],
    comm: Any,
) -> bool:  # fmt: skip
    """Return whether a run is done in the mean and unit of all rows.

    It starts from random parameters. The answer is the same on all ranks.
    """
    drawn = isinstance(init, str) and init != "merged"
    if not drawn or not why or why == NO_SUMS or not isinstance(scheme, penalty.Auto):
        return False
    return _all(map(units.supports, hosted.values()), comm)


def _all(can: Iterable[bool], comm: Any) -> bool:
    """Return whether all of them are true on all ranks."""
    if comm is None:
        return all(can)
    from dadmm.exchange.collectives import all_hold

    return bool(all_hold(comm, all(can)))


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
    made = _in_units(given, review, Bounded, sent)._replace(callbacks=(review.turn,))
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
    made = _in_units(given, review, Steady, sent)
    return made._replace(starts=review.starts, duals=duals)


def check_gradients(given: Prepared, comm: Any) -> Prepared:
    """Return a run in the coordinates of the user that ends when gradients are small.

    If some problem is convex or has no gradient, it ends by its stopping rule alone.
    """
    own = given.problems.values()
    has = (hasattr(p, "gradient") and not getattr(p, "convex", False) for p in own)
    if not _all(has, comm):
        return given
    if not _all((isinstance(p, PPCA) and not p.layout.scales for p in own), comm):
        return given._replace(review=GradientReview(given.problems))
    review = ModelReview(given.problems)
    rule = replace(given.rule, scaled=True)
    return given._replace(review=review, rule=rule, scales=review.scales)


def _in_units(
    given: Prepared, review: Any, scheme: type[penalty.Auto], sent: np.ndarray | None
) -> Prepared:
    """Return a run in the coordinates of a review, where `auto` is another scheme."""
    made = given._replace(
        problems=review.within, rule=replace(given.rule, scaled=True), review=review,
        scales=review.scales, sent=sent,
    )  # fmt: skip
    if type(given.scheme) is not penalty.Auto:
        return made
    own = scheme(**asdict(given.scheme))
    return made._replace(scheme=own, curvature=review.curvature)


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
