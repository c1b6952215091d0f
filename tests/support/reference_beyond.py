"""The penalties beyond the paper written plainly, one edge at a time; for `reference`.

It shares no code with the library, which is tested against it.
"""

from __future__ import annotations

import math

import numpy as np

SCHEMES = ("edge_balance", "edge_ratio", "node_spectral", "global_balance", "auto")
AGREEING = ("edge_balance", "edge_ratio", "global_balance", "auto")  # at both ends


def stack(theta):
    """Return all parameters of one node as one vector: W by rows, mu, a."""
    return np.concatenate([np.ravel(theta.W), np.ravel(theta.mu), [theta.a]])


def length(vector):
    """Return the Euclidean length, entry by entry."""
    return math.sqrt(math.fsum(x * x for x in vector.tolist()))


def slope(theta, anchors, multipliers, eta):
    """Return the gradient of f_i at the end of a proximal step, from what it balances.

    Each edge pulls with ``2 eta (z - theta) - 2 lambda``.
    """
    total = np.zeros_like(theta)
    for j in anchors:
        total = total + 2 * eta[j] * (anchors[j] - theta) - 2 * multipliers[j]
    return total


def together(nodes):
    """Return |r| and |s| over all nodes."""
    primal = math.sqrt(math.fsum(node.primal**2 for node in nodes))
    return primal, math.sqrt(math.fsum(node.dual**2 for node in nodes))


def diameter(neighbours):
    """Return how many edges lie between the two nodes that are farthest apart."""
    farthest = 0
    for i in range(len(neighbours)):
        reached, steps = {i}, 0
        while len(reached) < len(neighbours):
            reached |= {k for j in reached for k in neighbours[j]}
            steps += 1
        farthest = max(farthest, steps)
    return farthest


def opening(curvature, degree, wide):
    """Return the best fixed penalty for equal curvatures, nearly."""
    return curvature / (2 * degree) * math.sqrt(1 + wide**2 / 3.2**2)


def prime(nodes, neighbours, scheme, settings):
    """Let all nodes remember where their edges start, and with which penalty."""
    if scheme == "auto":
        wide = diameter(neighbours)
        proposed = [
            opening(settings.curvature[i], max(len(around), 1), wide)
            for i, around in enumerate(neighbours)
        ]
        for i, node in enumerate(nodes):
            for j in neighbours[i]:
                node.eta[j] = math.exp(
                    (math.log(proposed[i]) + math.log(proposed[j])) / 2
                )
            node.used = dict(node.eta)
    for node in nodes:
        remember(node)
        node.memory["start"] = dict(node.eta)


def remember(node):
    """Keep where the edges stand."""
    node.memory["multipliers"] = {j: stack(y) for j, y in node.multipliers.items()}
    node.memory["anchors"] = {j: stack(z) for j, z in node.anchors.items()}


def adapt(node, t, scheme, settings, network):
    """Set the penalties of one node's edges for the next iteration."""
    if scheme == "edge_balance":
        moved = {j: balanced(node, j) for j in node.eta}
        step = {j: min(max(moved[j] ** 0.5, 1 / 2), 2) for j in moved}
        node.eta = {j: node.eta[j] * step[j] ** calm(t, 150) for j in step}
    elif scheme in ("edge_ratio", "auto"):
        if t % 3 == 0:
            moved = {j: ratio(node, j) / node.eta[j] for j in node.eta}
            step = {j: min(max(moved[j], 1 / 10), 10) for j in moved}
            node.eta = {j: node.eta[j] * step[j] ** calm(t, 200) for j in step}
            remember(node)
    elif scheme == "node_spectral":
        factor = spectral(node, t)
        node.eta = {j: node.eta[j] * factor for j in node.eta}
    elif scheme == "global_balance" and t > 1 and t < settings.t_max:
        primal, dual = network[-1]
        if primal > settings.residual_ratio * dual:
            node.eta = {j: node.eta[j] * 2 for j in node.eta}
        if dual > settings.residual_ratio * primal:
            node.eta = {j: node.eta[j] / 2 for j in node.eta}
    for j, start in node.memory["start"].items():
        node.eta[j] = min(max(node.eta[j], 1e-6 * start), 1e6 * start)


def calm(t, scale):
    """Return how much of a step is taken."""
    return 1 / (1 + t / scale) ** 2


def balanced(node, j):
    """Return the relative primal over the relative dual residual of one edge."""
    mine, other = stack(node.theta), stack(node.others[j])
    primal = length(mine - other) / max(length(mine), length(other)) / math.sqrt(2)
    went = stack(node.anchors[j]) - stack(node.memory["anchors before"][j])
    dual = node.used[j] * length(went) / length(stack(node.multipliers[j]))
    return primal / dual


def ratio(node, j):
    """Return how far one edge's multiplier went, per way of its anchor."""
    turn = length(stack(node.multipliers[j]) - node.memory["multipliers"][j])
    return turn / length(stack(node.anchors[j]) - node.memory["anchors"][j])


def spectral(node, t):
    """Return the factor by which one node's penalties move, every second iteration."""
    if t % 2 == 0:
        return 1.0
    total = sum(node.used.values())
    centre = sum(node.used[j] * stack(node.anchors[j]) for j in node.used) / total
    pull = 2 * sum(stack(node.multipliers[j]) for j in node.used)
    now = (stack(node.theta), node.memory["slope"], centre, pull)
    before, node.memory["sights"] = node.memory.get("sights"), now
    if before is None:
        return 1.0
    ways = [new - old for new, old in zip(now, before, strict=True)]
    found = [bend(ways[0], ways[1]), bend(ways[2], ways[3])]
    found = [h for h in found if h is not None]
    if not found:
        return 1.0
    weight = 2 * sum(node.eta.values())
    wanted = math.exp(sum(math.log(h) for h in found) / len(found))
    most = 1 + 1e5 / t**2
    return min(max(wanted / weight, 1 / most), most)


def bend(way, turn):
    """Return the hybrid Barzilai-Borwein curvature, or None where there is none."""
    together = float(np.dot(way, turn))
    if together <= 0.2 * length(way) * length(turn):
        return None
    steep, gentle = length(turn) ** 2 / together, together / length(way) ** 2
    return gentle if steep < 2 * gentle else steep - gentle / 2
