"""The engine of `dadmm.admm` without `solve`: runs to step through, and their nodes."""

from types import SimpleNamespace

import numpy as np

from dadmm.admm.local import row_order
from dadmm.admm.loop import Run, RunKind, Setup
from dadmm.admm.rule import Rule
from dadmm.admm.state import Work
from dadmm.admm.stopping import GlobalStopping, NeighbourStopping
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending
from dadmm.comm.wire import IDLE
from dadmm.core.layout import Layout
from dadmm.graphs.incidence import Incidence
from dadmm.penalty.schemes import Fixed


def build(problems, topology, scheme=None, sending=None, schedule=None, **settings):
    """Return an open run of these problems, each from its own start."""
    hosted = dict(enumerate(problems))
    starts = {i: hosted[i].init(np.random.default_rng([3, i])) for i in hosted}
    size = problems[0].layout.shared_size
    exchange = Exchange(topology, size, row_order(topology, hosted))
    scheme, sending = scheme or Fixed(), sending or Sending()
    kind = RunKind(hosted, Rule(), starts)
    run = Run(Setup(kind, scheme, sending, **settings), exchange, topology, schedule)
    run.open()
    return run


def nodes_of(run):
    """Return what each node of a run has, in the order of their numbers."""
    found = []
    for row in np.argsort(run.nodes).tolist():
        edges, state, work = run.incidence.edges_of(row), run.state, run.work
        by_node = {
            name: getattr(work, name)[row].copy()
            for name in (*Work.VECTORS, *Work.NUMBERS, "centre", "weight")
        }
        by_edge = {
            name: getattr(state, name)[edges].copy()
            for name in ("sent", "received", "multipliers", "anchors", "eta")
        }
        found.append(SimpleNamespace(
            index=int(run.nodes[row]), problem=run.local.problems[row],
            theta=state.theta[row].copy(), satisfied=bool(state.held[row]),
            disagreement=work.disagreement[row], residual=work.residual[row],
            drift=work.drift[edges].copy(), midpoints=work.midpoints[edges].copy(),
            **by_node, **by_edge,
        ))  # fmt: skip
    return found


def stopping(rule, degrees=(0,), reach=1, cycle=1, nodes=None, exchange=None):
    """Return the stopping of nodes of these degrees, with a record of its own."""
    n = len(degrees)
    state = SimpleNamespace(
        header=np.full(n, IDLE), objective=np.zeros(n), held=np.zeros(n, int), posted={}
    )
    given = SimpleNamespace(
        state=state, work=Work(n, sum(degrees), 1, 1), exchange=exchange,
        names=np.arange(n) if nodes is None else nodes, layout=Layout.of(x=(1,)),
        incidence=Incidence(np.array(degrees)),
    )  # fmt: skip
    kind = NeighbourStopping if exchange is None else GlobalStopping
    return kind(given, rule, reach, cycle)
