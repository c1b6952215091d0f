"""Build a run from problems, graph, scheme, stopping rule and sending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np

from dadmm.admm.curvature import curvatures
from dadmm.admm.edges import Edges, LossyEdges
from dadmm.admm.local import Local
from dadmm.admm.loop import Run, RunKind
from dadmm.admm.mail import Mail
from dadmm.admm.penalties import Penalties
from dadmm.admm.state import State, Work
from dadmm.admm.stopping import GlobalStopping, NeighbourStopping
from dadmm.comm.codec import build_codec
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending, make_gates
from dadmm.comm.wire import IDLE, MOST_QUIET
from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.penalty.interface import PenaltyScheme


def row_order(topology: Topology, problems: Mapping[int, Problem]) -> np.ndarray:
    """Return the nodes in order of degree, and of the kind of their problem."""
    numbers: dict[object, int] = {}
    kinds = [
        numbers.setdefault((type(p), getattr(p, "kind", None)), len(numbers))
        for p in problems.values()
    ]
    nodes = np.array(list(problems))
    order: np.ndarray = nodes[np.lexsort((kinds, topology.degrees[nodes]))]
    return order


@dataclass(frozen=True)
class RunFactory:
    """Builds the run of this process, for the whole graph or without failed nodes.

    Parameters
    ----------
    kind : RunKind
    scheme : PenaltyScheme
    sending : Sending
    agreement : {"neighbours", "global"}
        How nodes agree on a stop.
    factors : callable, optional
        Takes the graph and directed edges, and returns the first penalty of each edge
        over the curvature; needed if the scheme's eta0 is "auto".
    """

    kind: RunKind
    scheme: PenaltyScheme
    sending: Sending
    agreement: str = "neighbours"
    factors: Callable[[Topology, np.ndarray], Vector] | None = None

    def build(
        self,
        exchange: Exchange,
        topology: Topology,
        schedule: Schedule | None = None,
        names: Sequence[int] | None = None,
    ) -> Run:
        """Return a run of the nodes of this process.

        Parameters
        ----------
        exchange : Exchange
            Its ``nodes`` and ``arcs`` decide the order of rows.
        topology : Topology
        schedule : Schedule, optional
        names : sequence of int, optional
            Original number of each node of the graph. By default these are the
            numbers themselves.
        """
        nodes, arcs = exchange.nodes, exchange.arcs
        own = nodes if names is None else np.asarray(names)[nodes]
        kind = self.kind
        problems = [kind.within[i] for i in own.tolist()]
        layout, scheme = problems[0].layout, self.scheme
        incidence = Incidence(topology.degrees[nodes])
        n, n_edges, m = len(nodes), len(arcs), layout.shared_size
        period = 1 if schedule is None else schedule.period
        reach = topology.diameter_bound * period
        self._check_reach(reach)
        gates = make_gates(self.sending, topology, arcs, schedule, incidence, own)
        direct = self.sending.always and not gates
        work = Work(n, n_edges, m, len(layout.sizes))
        theta = np.array([kind.starts[i] for i in own.tolist()], dtype=np.float64)
        probe = scheme.probe if scheme.probes else ""
        work.shared[...] = layout.shared(theta)
        work.mean[...] = work.shared
        state = State(
            theta=theta,
            mean=work.shared.copy(),
            objective=np.full(n, np.inf),
            held=np.zeros(n, dtype=np.int64),
            header=np.full(n, IDLE),
            measured=np.zeros((n, len(work.numbers))),
            seconds=np.zeros((n, 4)),
            posted={},
            sent=exchange.outbox.numbers if direct else np.empty((n_edges, m)),
            received=exchange.inbox.numbers if direct else np.empty((n_edges, m)),
            multipliers=np.zeros((n_edges, m)),
            anchors=np.zeros((n_edges, m)),
            eta=np.zeros(n_edges),
            penalty={},
            sending=Mail.arrays(gates, n_edges, direct),
            traffic=np.zeros((n_edges, 2), dtype=np.int64),
            stopping=np.empty((n, 0)),
            idle=np.zeros((), dtype=np.int64),
            collectives=np.zeros(2, dtype=np.int64),
            coordinates={},
        )
        local = Local(state, work, own, problems, incidence, probe)
        started = monotonic()
        curvature = self._curvature(own, problems, local, theta)
        measured = monotonic() - started
        proposed = self._proposed(topology, arcs, incidence, curvature)
        make_edges = LossyEdges if self.sending.drop_probability else Edges
        edges = make_edges(state, work, incidence, layout, scheme.alpha, direct)
        packing = build_codec(self.sending.payload, layout, self.sending.bits)
        mail = Mail(
            state, work, edges, exchange, incidence, packing, gates,
            scheme.couples, direct,
        )  # fmt: skip
        run = Run(
            topology=topology,
            layout=layout,
            nodes=nodes,
            arcs=arcs,
            names=own,
            incidence=incidence,
            state=state,
            work=work,
            edges=edges,
            local=local,
            mail=mail,
            exchange=exchange,
            stopping=self._stopping(
                state, work, own, incidence, layout, reach, period, exchange, local
            ),
            penalties=Penalties(
                state, work, scheme, incidence, mail, exchange, proposed
            ),
            curvature_seconds=measured,
            kind=kind,
        )
        kind.adopt(run)
        return run

    def _curvature(
        self, own: np.ndarray, problems: Sequence[Problem], local: Local, theta: Matrix
    ) -> Vector:
        """Return the curvature of each f_i, (n,); NaN where it is not needed."""
        if self.scheme.eta0 != "auto":
            return np.full(len(own), np.nan)
        if self.kind.curvature is not None:
            return np.array([self.kind.curvature[i] for i in own.tolist()])
        return curvatures(problems, local.blocks, theta)

    def _proposed(
        self,
        topology: Topology,
        arcs: np.ndarray,
        incidence: Incidence,
        curvature: Vector,
    ) -> Vector:
        """Return the first penalties that this end of each edge proposes, (E,)."""
        if self.scheme.eta0 != "auto":
            return np.full(len(arcs), float(self.scheme.eta0 or np.nan))
        assert self.factors is not None
        return np.repeat(curvature, incidence.degrees) * self.factors(topology, arcs)

    def _check_reach(self, reach: int) -> None:
        agrees = self.agreement == "neighbours" and self.kind.rule.tolerance > 0.0
        if agrees and reach >= MOST_QUIET:
            raise ConfigError(
                f"the nodes need {reach} iterations to agree on a stop, more than the "
                f"{MOST_QUIET - 1} that a message can count; use agreement='global', "
                "or tolerance=0 and max_iter"
            )

    def _stopping(
        self,
        state: State,
        work: Work,
        names: np.ndarray,
        incidence: Incidence,
        layout: Layout,
        reach: int,
        period: int,
        exchange: Exchange,
        local: Local,
    ) -> NeighbourStopping:
        cycle = self.sending.send_every * period
        rule, found, scales = self.kind.rule, self.kind.scales, None
        if callable(found):
            scales = found(names)
        elif found is not None:
            scales = np.stack([found[i] for i in names.tolist()], axis=-1)
        known = rule.judges_likelihood and local.has_likelihood
        given = (
            state, work, rule, names, incidence, layout, reach, cycle, scales,
            local.likelihoods if known else None,
        )  # fmt: skip
        if self.agreement == "global":
            return GlobalStopping(exchange, *given)
        return NeighbourStopping(*given)
