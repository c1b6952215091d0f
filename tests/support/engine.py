"""The engine of `dadmm.admm` without `solve`: runs to step through, nodes that stop."""

from types import SimpleNamespace

import numpy as np

from dadmm.admm.local import row_order
from dadmm.admm.loop import Run, RunKind, Setup
from dadmm.admm.rule import Rule
from dadmm.admm.state import Work
from dadmm.admm.stopping import GlobalStopping, NeighbourStopping
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending, Turn
from dadmm.comm.wire import IDLE, Box
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


RULE = Rule("objective", 0.5)  # |f - f_previous| < 1/2 if |f| is below 1


def agree(rounds, reach, content, requests=(), together=False):
    """Return when and why each node is done, and how quiet it was (t, n_nodes).

    ``rounds`` has the neighbours of each node, for each turn of a schedule; ``reach``
    is the number of iterations that a header takes to all. ``content`` (t, n_nodes) has
    the verdicts, ``requests`` are (t, node, request). Each node is a process, or all
    are in one.
    """
    n = content.shape[1]
    union = [sorted({j for near in rounds for j in near[i]}) for i in range(n)]
    order = sorted(range(n), key=lambda i: len(union[i]))
    hosts = [order] if together else [[i] for i in range(n)]
    processes = [
        stopping(RULE, [len(union[i]) for i in own], reach, nodes=np.array(own))
        for own in hosts
    ]
    ends, quiet = [None] * n, np.zeros(content.shape)
    headers = np.empty(n, dtype=np.uint64)
    for t, verdicts in enumerate(content, start=1):
        for own, process in zip(hosts, processes, strict=True):
            headers[own] = process.state.header
        here = rounds[(t - 1) % len(rounds)]
        for own, process in zip(hosts, processes, strict=True):
            pairs = [(i, j) for i in own for j in union[i]]
            box = Box(len(pairs), 1)
            box.header[...] = headers[[j for _, j in pairs]]
            present = np.array([j in here[i] for i, j in pairs], dtype=bool)
            process.work.objective[...] = np.where(verdicts[own], 0.0, 1.0)
            process.judge(box, Turn(t, present=None if present.all() else present))
            done, due = process.done(t), process.due_request(t)
            quiet[t - 1, own] = process.state.header.view(box.fields.dtype)[
                "quiet_count"
            ]
            for i in own:
                if (done or due) and ends[i] is None:
                    ends[i] = t, "converged" if done else due
        for _, i, request in (request for request in requests if request[0] == t):
            process = processes[0 if together else i]
            process.request(t, request)
    return ends, quiet
