"""The agreement of all nodes to stop, without a run: verdicts and requests come in."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from dadmm.admm import stopping
from dadmm.admm.stopping import StopState


def agree(rounds, reach, content, requests=()):
    """Return when and why each node is done, and how quiet it was (t, n_nodes).

    ``rounds`` has the neighbours of each node, for each turn of a schedule; ``reach``
    is the number of iterations that a word takes to all. ``content`` (t, n_nodes) has
    the verdicts, ``requests`` are (t, node, request).
    """
    n = content.shape[1]
    states, ends, quiet = [StopState()] * n, [None] * n, np.zeros(content.shape)
    for t, verdicts in enumerate(content.tolist(), start=1):
        sent = np.array([state[1:] for state in states])
        for i, near in enumerate(rounds[(t - 1) % len(rounds)]):
            counts, stop_at, asked = sent[list(near)].T
            theirs = SimpleNamespace(
                quiet_count=counts, stop_at=stop_at, requests=asked.astype(int)
            )
            states[i] = stopping.update(states[i], theirs, t, verdicts[i], reach)
        due = [stopping.due_request(state, t, reach) for state in states]
        states = [state for _, state in due]
        for _, i, request in (request for request in requests if request[0] == t):
            states[i] = stopping.add_request(states[i], t, request, reach)
        for i, state in enumerate(states):
            quiet[t - 1, i] = state.quiet_count
            if t >= state.stop_at and ends[i] is None:
                ends[i] = t, "converged"
            elif due[i][0] and ends[i] is None:
                ends[i] = t, due[i][0]
    return ends, quiet
