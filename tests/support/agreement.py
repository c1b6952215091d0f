"""The agreement of all nodes to stop, for given verdicts and requests."""

import numpy as np

from dadmm.admm.rule import Rule
from dadmm.comm.sending import Turn
from dadmm.comm.wire import Box
from tests.support.engine import stopping

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
