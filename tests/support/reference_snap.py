"""`snap` and its first penalties written plainly, one edge at a time; for `reference`.

It shares no code with the library, which is tested against it.
"""

import math

import numpy as np

MOST = math.log2(10) / 2  # bits that an edge can ask for


def length(vector):
    """Return the Euclidean length, entry by entry."""
    return math.sqrt(math.fsum(x * x for x in np.ravel(vector).tolist()))


def first_penalties(neighbours, curvature):
    """Return the first penalty of each edge (i, j): the larger of both proposals.

    An end proposes ``h R / (4 sqrt(1 - s^2))``, with its curvature h, R the resistance
    of the edge and of all ways over a common neighbour in parallel, and the second
    eigenvalue s of the walk to a random neighbour.
    """
    n, slow = len(neighbours), 1.0
    if n > 2:
        walk = [[(j in near) / len(near) for j in range(n)] for near in neighbours]
        second = sorted(np.linalg.eigvals(walk).real)[-2]
        slow = 1 / math.sqrt(1 - max(second, 0.0) ** 2)
    found = {}
    for i, near in enumerate(neighbours):
        for j in near:
            resistance = 1 / (1 + len(set(near) & set(neighbours[j])) / 2)
            found[i, j] = max(curvature[i], curvature[j]) * resistance * slow / 4
    return found


def start(eta, budget0):
    """Return one edge before iteration 1."""
    counts = {"spent": 0.0, "budget": budget0, "raised": 0, "used_up": 0}
    return {"eta": eta, **counts, "largest": 0.0, "way": 0.0}


def update(edge, z, y, z_old, y_old, budget0, decay, trigger):
    """Adapt one edge, by its anchor z and multiplier y now and three iterations ago."""
    way, turn, eta = length(z - z_old), length(y - y_old), edge["eta"]
    wanted = eta if way == turn == 0 else math.inf if way == 0 else turn / way
    asked = math.log2(min(max(wanted / eta, 1 / 10), 10)) / 2
    left = edge["budget"] - edge["spent"]
    edge["way"] += turn  # of the multiplier, by which an edge earns its budget
    part = min(edge["way"] / length(y), 1) ** 2 if length(y) else 1.0
    usable = max(part * edge["budget"] - edge["spent"], 0.0)
    step = asked * min(usable / max(budget0, MOST), 1)
    move = math.sqrt(eta) * way + turn / math.sqrt(eta)
    edge["largest"] = max(edge["largest"], move)
    out, moves = asked != 0 and abs(asked) >= left, move > trigger * edge["largest"]
    edge["used_up"] = int(out and not moves)
    if out and moves:
        edge["raised"] += 1
        edge["budget"] += decay ** edge["raised"] * budget0
    edge["eta"], edge["spent"] = eta * 2**step, edge["spent"] + abs(step)
