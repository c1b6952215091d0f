"""One run of a comparison: when its nodes have arrived, and what was sent until then.

In iteration ``first`` every node is within the goal for the first time; from
``for_good`` on every node stays, for half as many iterations again and at least `STAY`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from dadmm.comm.traffic import Traffic
from dadmm.comm.world import World
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import Problem, TransformableProblem
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import row_lengths, triangular
from dadmm.graphs.topology import Topology
from dadmm.solver.solve import Stopping, solve
from dadmm.timing.network import Network
from dadmm.timing.replay import Replay, Trace, tree_seconds

STAY = 50  # iterations that the nodes must stay within the goal, at least
BLOCK = 25  # iterations after which ranks tell each other their errors
WILD = 1e12  # of an error, or of a parameter in place of an angle: the run diverges
STEADY = 100  # exchanges that are simulated; if all are alike, the others follow
POINTS = 100  # of a curve
PER_DECADE = 8  # values of a setting that are tried
FINEST = 1e-11  # tolerance of the run that finds the optimum
Distance = Callable[[Matrix], float]  # the largest of the nodes of this process


class Arrival:
    """Note in each iteration whether all nodes are within their goal.

    They must enter it, and stay from then on, in iteration ``cap`` or before.
    """

    def __init__(self, to: float, cap: int) -> None:
        self.to, self.cap = to, cap
        self.first: int | None = None  # see the top of this file
        self.for_good: int | None = None
        self.is_wild = False
        self._since: int | None = None  # the nodes are within the goal since then
        #: the iteration in which both numbers are known at the latest
        self.longest = BLOCK * -(-_horizon(cap) // BLOCK)

    def known(self, t: int, error: float) -> bool:
        """Note iteration ``t``; return whether both numbers are known."""
        self.is_wild = not error <= WILD
        if not error <= self.to:
            self._since = None
            return t >= self.cap or self.is_wild
        self.first = self.first or t
        self._since = self._since or t
        if t < _horizon(self._since):
            return False
        self.for_good = self._since
        return True

    @property
    def ended(self) -> str:
        """How the run ended."""
        if self.for_good:
            return "arrived"
        if self.is_wild:
            return "diverged"
        return "left again" if self.first else "too far"


def _horizon(entered: int) -> int:
    """Return until when the nodes must stay to have arrived for good."""
    return entered + max(entered // 2, STAY)


class Watch:
    """A callback that notes errors and what is sent, until it is known what it took."""

    def __init__(self, world: World, distance: Distance, arrival: Arrival) -> None:
        self._world, self._distance, self.arrival = world, distance, arrival
        self.errors: list[float] = []  # of all nodes, up to the last block
        self.bytes: list[np.ndarray] = []  # (E,) of this process, by iteration
        self._messages: list[int] = []
        self._own: list[float] = []
        self._is_over = False

    def __call__(self, t: int, run: Any) -> str | None:
        lengths, tree = run.exchange.lengths, run.tree.sent[run.arcs]
        if t == 1:
            self._before = getattr(run, "tree_at_start", run.tree.sent)[run.arcs]
            self.setup, self.arcs = self._before.copy(), run.arcs
            self.end = np.zeros_like(self.setup)  # without sums at the end
            self.opening = run.exchange.sent[:, 1] - lengths
        summed, self._before = tree - self._before, tree.copy()
        self.bytes.append(lengths + summed[:, 1])
        self.is_broadcast = run.is_broadcast
        self._messages.append(int((lengths > 0).sum() + summed[:, 0].sum()))
        self._shared = run.exchange.collectives.tolist()
        self._own.append(self._distance(run.theta))
        if t % BLOCK == 0 and not self._is_over:
            own = np.array(self._own[-BLOCK:])
            everyone = self._world.gather(own, True).reshape(-1, BLOCK)
            for at, error in enumerate(everyone.max(axis=0).tolist(), t - BLOCK + 1):
                self.errors.append(error)
                self._is_over = self._is_over or self.arrival.known(at, error)
        return "stop" if self._is_over else None

    def finish(self, traffic: Traffic) -> None:
        """Note the sums at the end, which only `dadmm.solve` sends."""
        by_edge = np.array([traffic.tree_messages, traffic.tree_bytes]).T
        self.end = by_edge[np.argsort(np.argsort(self.arcs))] - self.setup

    def measure(
        self, graph: Topology, networks: Mapping[str, Network], work: float,
        on_tree: bool,
    ) -> Table:  # fmt: skip
        """Return what was sent until the nodes arrived, on rank 0; all ranks call it.

        A node works ``work`` seconds in an iteration, which may be a sum over the tree.
        """
        arrival, n = self.arrival, graph.n_nodes
        found: Table = {"first": arrival.first, "for_good": arrival.for_good}
        found["ended"] = arrival.ended
        if not self.bytes:
            return found
        until = arrival.for_good or min(arrival.cap, len(self.errors))
        columns = [self.arcs, *self.setup.T, *self.end.T, self.opening]
        rows = self._world.gather(np.array([*columns, *self.bytes[:until]], float).T)
        told = sum(self._messages[:until]) + int((self.opening > 0).sum())
        told += int((self.setup + self.end)[:, 0].sum())
        messages = int(self._world.gather(np.array([told])).sum())
        if self._world.rank:
            return found
        rows = rows[np.argsort(rows[:, 0]), 1:]  # (E, 5 + until)
        setup, end, opening, sent = rows[:, :2], rows[:, 2:4], rows[:, 4], rows[:, 5:].T
        calls, shared = self._shared  # collectives, also of iterations after `until`
        each = sent.sum(axis=1) + shared / max(calls, 1)
        before, loop = setup[:, 1].sum(), opening.sum() + np.cumsum(each)
        keep = np.unique(np.geomspace(1, until, POINTS).round().astype(int)) - 1
        found["curve"] = {
            "iteration": (keep + 1).tolist(),
            "error": [_six_digits(self.errors[k]) for k in keep],
            "bytes": [round((before + loop[k]) / n) for k in keep],
        }
        ends = {}  # modelled seconds of the whole run; those of collectives are unknown
        for name, network in networks.items() if not calls else ():
            seconds = self._clock(graph, network, work, opening, sent, on_tree)
            clock = tree_seconds(graph, network, setup) + seconds
            ends[name] = float(clock[-1]) + tree_seconds(graph, network, end)
            found["curve"][name] = [_six_digits(clock[k]) for k in keep]
        if arrival.for_good:
            after = end[:, 1].sum()
            firsts = np.unique(graph.edges[:, 0], return_index=True)[1]
            sent_once = sent[:, firsts] if self.is_broadcast else sent
            radio = before + opening.sum() + sent_once.sum() + after
            radio += until * shared / max(calls, 1)
            found |= {
                "messages": messages, "bytes": round(loop[-1] / n),
                "setup_bytes": round(before / n), "end_bytes": round(after / n),
                "total_bytes": round((before + loop[-1] + after) / n),
                "broadcast_bytes": round(radio / n),  # as a radio sends them
            }  # fmt: skip
            found |= {f"{k}_seconds": _six_digits(end) for k, end in ends.items()}
        return found

    def _clock(
        self, graph: Topology, network: Network, work: float, opening: Vector,
        sent: Matrix, on_tree: bool,
    ) -> Vector:  # fmt: skip
        """Return the modelled time at the end of each iteration, without set-up."""
        if on_tree:  # the same in all iterations
            first = np.array([sent[0] > 0, sent[0]]).T
            each = work + tree_seconds(graph, network, first)
            return np.asarray(each * np.arange(1, len(sent) + 1))
        alike = len(sent) > STEADY and bool((sent[STEADY // 2 :] == sent[-1]).all())
        shown = sent[:STEADY] if alike else sent
        none = np.zeros((len(shown), graph.n_nodes))
        trace = Trace(
            graph, none + work, none, none, none, shown, opening,
            is_broadcast=self.is_broadcast,
        )  # fmt: skip
        ends: Vector = Replay(trace, network).ends[1:].max(axis=1)
        half, last = len(ends) // 2, len(ends) - 1
        each = (ends[-1] - ends[half]) / max(last - half, 1)
        more = np.arange(1, len(sent) - len(shown) + 1)
        return np.append(ends, ends[-1] + each * more)


def _six_digits(value: float) -> float:
    return float(f"{value:.6g}")


def find_optimum(
    world: World, problems: Mapping[int, Problem], graph: Topology, to: float
) -> tuple[Distance, float]:
    """Return the distance from the pooled optimum, and a bound on its own error.

    It is ``|F (theta - best)| / |F best|``, where F'F is the Hessian of the sum of all
    f_i at the optimum, which a certified run finds.
    """
    own = [cast("TransformableProblem", problem) for problem in problems.values()]
    if not getattr(own[0], "convex", False) or not hasattr(own[0], "rows"):
        raise ConfigError(
            f"the optimum of {type(own[0]).__name__} is not known, so methods cannot "
            "be compared; use ppca without missing entries, or a convex problem"
        )
    result = solve(
        problems, graph, coordinates="metric",
        stopping=Stopping(tolerance=FINEST, max_iter=20_000), record=False,
        gather="none", comm=world.comm,
    )  # fmt: skip
    best, certificate = result.solution, result.certificate
    factors = [triangular(problem.rows(best)) for problem in own]
    F = world.reduce(graph, factors, lambda a, b: triangular(np.vstack([a, b])))
    size = float(np.linalg.norm(F @ best))
    radius = math.inf if certificate is None else certificate.radius
    known = radius * math.sqrt(graph.n_nodes) / size if size else math.inf
    if not 2.0 * known <= to:
        raise ConfigError(
            f"the optimum is known to {known:.1e} only (relative, in the metric of the "
            f"problem), but --to is {to:g}; use a larger --to, or --standardise"
        )

    def distance(theta: Matrix) -> float:
        return float(row_lengths((theta - best) @ F.T).max() / size)

    return distance, known


def find_best(
    attempt_with: Callable[[float, int], int | None], start: float, cap: int
) -> float | None:
    """Return the value of a setting with which nodes arrive soonest, or None.

    Values are ``start`` times powers of ten to the eighth. The search goes up and down
    by half a decade as long as that is better, then by shorter distances.
    """
    tried: dict[int, int | None] = {}
    best, least = 0, cap

    def visit(k: int) -> None:
        nonlocal best, least
        if k not in tried and abs(k) <= 6 * PER_DECADE:
            tried[k] = found = attempt_with(start * 10.0 ** (k / PER_DECADE), least)
            if found and (found < least or not tried[best]):
                best, least = k, found

    for k in (0, 4, -4, 8, -8, 16, -16, 24, -24):
        visit(k)
        if k >= 8 and tried[best]:
            break
    for reach in (8, 4, 2, 1):
        centre = None
        while centre != best:
            centre = best
            visit(best + reach)
            visit(best - reach)
    return start * 10.0 ** (best / PER_DECADE) if tried[best] else None
