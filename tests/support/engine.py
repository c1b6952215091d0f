"""The engine of `dadmm.admm` without `solve`: runs to step through, nodes that stop."""

from types import SimpleNamespace

import numpy as np

from dadmm.admm.local import row_order
from dadmm.admm.loop import Run, RunKind, Setup
from dadmm.admm.rule import Rule
from dadmm.admm.state import Work
from dadmm.admm.stopping import NeighbourStopping
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending, Turn
from dadmm.comm.wire import IDLE, Box
from dadmm.core.layout import Layout
from dadmm.graphs.incidence import Incidence


def build(problems, topology, scheme, sending=None):
    """Return an open run of these problems, each from its own start."""
    hosted = dict(enumerate(problems))
    starts = {i: hosted[i].init(np.random.default_rng([3, i])) for i in hosted}
    size = problems[0].layout.shared_size
    exchange = Exchange(topology, size, row_order(topology, hosted))
    setup = Setup(RunKind(hosted, Rule(), starts), scheme, sending or Sending())
    run = Run(setup, exchange, topology)
    run.open()
    return run


def nodes_of(run):
    """Return what each node of a run has, in the order of their numbers."""
    found, state, work = [], run.state, run.work
    by_node = (
        "primal", "lag", "difference", "stationarity", "disagreement", "residual",
    )  # fmt: skip
    by_edge = ("sent", "received", "anchors", "eta")
    for row in np.argsort(run.nodes).tolist():
        edges = run.incidence.edges_of(row)
        found.append(SimpleNamespace(
            theta=state.theta[row].copy(), drift=work.drift[edges].copy(),
            **{name: getattr(work, name)[row].copy() for name in by_node},
            **{name: getattr(state, name)[edges].copy() for name in by_edge},
        ))  # fmt: skip
    return found


def stopping(rule, degrees=(0,), reach=1, nodes=None):
    """Return the stopping of nodes of these degrees, with a record of its own."""
    n = len(degrees)
    state = SimpleNamespace(
        header=np.full(n, IDLE), objective=np.zeros(n), held=np.zeros(n, int)
    )
    given = SimpleNamespace(
        state=state, work=Work(n, sum(degrees), 1, 1), layout=Layout.of(x=(1,)),
        names=np.arange(n) if nodes is None else nodes,
        incidence=Incidence(np.array(degrees)),
    )  # fmt: skip
    return NeighbourStopping(given, rule, reach)


RULE = Rule("objective", 0.5)  # |f - f_previous| < 1/2 if |f| is below 1


def agree(topology, content, requests=(), together=False):
    """Return when and why each node is done, and how quiet it was (t, n_nodes).

    ``content`` (t, n_nodes) has the verdicts, ``requests`` are (t, node, request). Each
    node is a process, or all are in one.
    """
    n, near, reach = len(topology), topology.neighbours, topology.diameter
    order = sorted(range(n), key=lambda i: len(near[i]))
    hosts = [order] if together else [[i] for i in range(n)]
    processes = [
        stopping(RULE, [len(near[i]) for i in own], reach, np.array(own))
        for own in hosts
    ]
    ends, quiet = [None] * n, np.zeros(content.shape)
    headers = np.empty(n, dtype=np.uint64)
    for t, verdicts in enumerate(content, start=1):
        for own, process in zip(hosts, processes, strict=True):
            headers[own] = process.state.header
        for own, process in zip(hosts, processes, strict=True):
            senders = [j for i in own for j in near[i]]
            box = Box(len(senders), 1)
            box.header[...] = headers[senders]
            process.work.objective[...] = np.where(verdicts[own], 0.0, 1.0)
            process.judge(box, Turn(t))
            done, due = process.done(t), process.due_request(t)
            quiet[t - 1, own] = process.work.quiet
            for i in own:
                if (done or due) and ends[i] is None:
                    ends[i] = t, "converged" if done else due
        for _, i, request in (request for request in requests if request[0] == t):
            processes[0 if together else i].request(t, request)
    return ends, quiet
