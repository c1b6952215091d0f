"""The paper's method written plainly: one node, neighbour and sample at a time.

It is slow and meant to be read next to Song, Yoon and Pavlovic, "Fast ADMM Algorithm
for Distributed Optimization with Adaptive Penalty". It shares no code with the
library, which is tested against it. What the paper leaves open is decided as in
benchmarks/PAPER.md. `snap` is not the paper's; `global_balance` is the rule (4) with
the residuals of all nodes.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST = math.log2(10) / 2  # bits that an edge can ask for
SCHEMES = ("fixed", "vp", "ap", "nap", "vp_ap", "vp_nap")
AGREEING = ("snap", "global_balance")  # both ends find one penalty by themselves


class Theta(NamedTuple):
    """Parameters of one node; also, per edge, its multipliers lambda, gamma, beta."""

    W: NDArray  # (D, M)
    mu: NDArray  # (D,)
    a: float  # noise precision


class Posterior(NamedTuple):
    mean: NDArray  # (M,), E[z]
    covariance: NDArray  # (M, M), E[z z'] - E[z] E[z]'


@dataclass(frozen=True)
class Settings:
    eta0: float = 10.0
    t_max: int = 50
    residual_ratio: float = 10.0  # mu of the residual balance
    budget0: float = 5.0  # T
    budget_decay: float = 0.5  # alpha
    budget_trigger: float = 0.1  # beta
    coupling: str = "symmetric"  # or "own", the paper as printed
    probe: str = "midpoint"  # or "neighbour", as in the authors' program
    zero_mean: bool = False
    relaxation: float = 1.0
    curvature: tuple[float, ...] = ()  # of each node, for snap


def expect(theta: Theta, x: NDArray) -> Posterior:
    """Return p(z | x) under ``theta``, equation (13), of one sample."""
    M = theta.W.T @ theta.W + np.eye(theta.W.shape[1]) / theta.a
    mean = np.linalg.solve(M, theta.W.T @ (x - theta.mu))
    return Posterior(mean, np.linalg.inv(M) / theta.a)


def misfit(theta: Theta, x: NDArray, z: Posterior) -> float:
    """Return E ||x - W z - mu||^2 with z from a given posterior."""
    residual = x - theta.W @ z.mean - theta.mu
    return residual @ residual + np.sum(z.covariance * (theta.W.T @ theta.W))


def objective(theta: Theta, samples: NDArray, beliefs: Sequence[Posterior]) -> float:
    """Return f_i: the expected -log p(x, z | theta); beliefs are the node's own."""
    total = 0.0
    for x, z in zip(samples, beliefs, strict=True):
        D, M = theta.W.shape
        total += D / 2 * np.log(2 * np.pi / theta.a)
        total += theta.a / 2 * misfit(theta, x, z)
        total += M / 2 * np.log(2 * np.pi)
        total += (z.mean @ z.mean + np.trace(z.covariance)) / 2
    return float(total)


def maximise(old, samples, beliefs, edges, zero_mean):
    """Return the new parameters of one node: W, then mu, then a (the M-step).

    ``edges`` has the multiplier, the anchor z_ij and eta_ij of each neighbour: the
    paper's ``eta (W_i + W_j)`` is ``2 eta z_ij``, z_ij the old midpoint.
    """
    M = old.W.shape[1]
    left, right = np.zeros_like(old.W), np.zeros((M, M))
    for x, z in zip(samples, beliefs, strict=True):
        left = left + old.a * np.outer(x - old.mu, z.mean)
        right = right + old.a * (z.covariance + np.outer(z.mean, z.mean))
    for multiplier, anchor, eta in edges:
        left = left - 2 * multiplier.W + 2 * eta * anchor.W
        right = right + 2 * eta * np.eye(M)
    W = np.linalg.solve(right, left.T).T

    top, bottom = np.zeros_like(old.mu), 0.0  # equation (15), with the new W
    for x, z in zip(samples, beliefs, strict=True):
        top = top + old.a * (x - W @ z.mean)
        bottom = bottom + old.a
    for multiplier, anchor, eta in edges:
        top = top - 2 * multiplier.mu + 2 * eta * anchor.mu
        bottom = bottom + 2 * eta
    mu = np.zeros_like(old.mu) if zero_mean else top / bottom

    weight = b = constant = 0.0  # the positive root of weight a^2 + b a = constant
    for x, z in zip(samples, beliefs, strict=True):
        b = b + misfit(Theta(W, mu, old.a), x, z) / 2
        constant = constant + len(mu) / 2
    for multiplier, anchor, eta in edges:
        weight = weight + 2 * eta
        b = b + 2 * multiplier.a - 2 * eta * anchor.a
    root = np.sqrt(b * b + 4 * weight * constant)
    # The same root twice: the form that adds numbers of one sign loses no digits.
    a = 2 * constant / (b + root) if b > 0 else (root - b) / (2 * weight)
    return Theta(W, mu, a)


def mixed(*terms: tuple[float, Theta]) -> Theta:
    parts = zip(*(theta for _, theta in terms), strict=True)
    weights = [weight for weight, _ in terms]
    return Theta(*(sum(map(operator.mul, weights, part)) for part in parts))


def midpoint(mine: Theta, other: Theta) -> Theta:
    """Return rho_ij, halfway between the two ends of an edge."""
    return mixed((1 / 2, mine), (1 / 2, other))


def stack(theta: Theta) -> NDArray:
    """Return all parameters of one node as one vector: W by rows, mu, a."""
    return np.concatenate([theta.W.ravel(), theta.mu, [theta.a]])


def neighbour_mean(others: Mapping[int, Theta]) -> NDArray:
    """Return theta-bar_i of equation (5), which leaves node i itself out."""
    return sum(stack(theta) for theta in others.values()) / len(others)


def relative_merit(own: float, tried: Mapping[int, float]) -> dict[int, float]:
    """Return tau_ij of every neighbour j from f_i at home and where tried: (7), (8)."""
    f_min = min([own, *tried.values()])
    f_max = max([own, *tried.values()])
    if f_max - f_min <= 1e-12 * max(abs(f_min), abs(f_max)):
        return {j: 0.0 for j in tried}  # nobody is better

    def kappa(f):
        return (f - f_min) / (f_max - f_min) + 1

    return {j: kappa(own) / kappa(f) - 1 for j, f in tried.items()}


def residual_balance(primal: float, dual: float, ratio: float) -> float:
    """Return the factor 2, 1/2 or 1 by which VP changes a penalty, (4)."""
    if primal > ratio * dual:
        return 2.0
    if dual > ratio * primal:
        return 0.5
    return 1.0


def next_penalty(scheme, settings, t, edge, tau, balance):
    """Return eta_ij^{t+1} of one directed edge: equations (4), (6), (9) and (12).

    What the edge has spent includes this iteration's tau, its budget is T_ij^t, before
    it grows.
    """
    eta, eta0 = edge["eta"], settings.eta0
    in_time, in_budget = t < settings.t_max, edge["spent"] < edge["budget"]
    both = eta if balance == 1.0 else eta * (1 + tau) * balance
    new = {
        "fixed": eta0,
        "vp": eta * balance if in_time else eta0,
        "ap": eta0 * (1 + tau) if in_time else eta0,
        "nap": eta0 * (1 + tau) if in_budget else eta0,
        "vp_ap": both if in_time else eta0,
        "vp_nap": both if in_budget else eta0,
        "global_balance": eta * balance if in_time else eta,
    }[scheme]
    return min(max(new, 1e-6 * eta0), 1e6 * eta0)


def length(vector):
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


def start_edge(eta, budget0):
    """Return what an end of an edge knows; the last two are for snap."""
    counts = {"spent": 0.0, "budget": budget0, "raised": 0, "used_up": 0}
    return {"eta": eta, **counts, "largest": 0.0, "way": 0.0}


def adapt_edge(edge, z, y, z_old, y_old, budget0, decay, trigger):
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


@dataclass
class Node:
    """What one node knows. Dictionaries have a key for every neighbour."""

    samples: NDArray
    theta: Theta
    others: dict[int, Theta]  # theta_j as last received
    edges: dict[int, dict[str, float]]  # see `start_edge`; eta as this node set it
    used: dict[int, float]  # penalty of this iteration's M-step and dual step
    multipliers: dict[int, Theta]
    anchors: dict[int, Theta]  # z_ij; without over-relaxation the midpoints
    beliefs: list[Posterior] = field(default_factory=list)
    f: float = np.nan
    primal: float = 0.0
    dual: float = 0.0
    balance: float = 1.0
    before: dict = field(default_factory=dict)  # anchors and multipliers, for snap


def prime(i, shards, neighbours, theta0, settings) -> Node:
    """Return node i before iteration 1: it has theta^0 of its neighbours."""
    near, eta0 = neighbours[i], settings.eta0
    return Node(
        shards[i], theta0[i], others={j: theta0[j] for j in near},
        edges={j: start_edge(eta0, settings.budget0) for j in near},
        used=dict.fromkeys(near, eta0),
        multipliers=dict.fromkeys(near, mixed((0, theta0[i]))),
        anchors={j: midpoint(theta0[i], theta0[j]) for j in near},
    )  # fmt: skip


def solve_locally(node: Node, settings: Settings) -> None:
    node.beliefs = [expect(node.theta, x) for x in node.samples]
    edges = [(node.multipliers[j], node.anchors[j], node.used[j]) for j in node.used]
    node.theta = maximise(
        node.theta, node.samples, node.beliefs, edges, settings.zero_mean
    )


def receive(node: Node, new: Mapping[int, Theta], alpha: float) -> None:
    """Dual step, anchors and residuals, from the new parameters of the neighbours.

    With over-relaxation alpha, z_ij goes beyond the new midpoint, or short of it.
    """
    for j in new:
        step = alpha * node.used[j] / 2  # of section 4.3
        gap = mixed((1, node.theta), (-1, new[j]))
        node.multipliers[j] = mixed((1, node.multipliers[j]), (step, gap))
        middle = midpoint(node.theta, new[j])
        node.anchors[j] = mixed((1 - alpha, node.anchors[j]), (alpha, middle))
    if new:
        eta_i = sum(node.used.values()) / len(node.used)
        mean, mean_before = neighbour_mean(new), neighbour_mean(node.others)
        node.primal = float(np.linalg.norm(stack(node.theta) - mean))
        node.dual = float(eta_i * np.linalg.norm(mean - mean_before))
    node.others = dict(new)


def adapt(node: Node, t: int, scheme: str, settings: Settings) -> None:
    """Objectives, tau, eta, then budget."""
    before, node.f = node.f, objective(node.theta, node.samples, node.beliefs)
    tried = {}
    for j, theta in node.others.items():
        at = midpoint(node.theta, theta) if settings.probe == "midpoint" else theta
        tried[j] = objective(at, node.samples, node.beliefs)
    tau = relative_merit(node.f, tried)
    if scheme != "global_balance":
        node.balance = residual_balance(node.primal, node.dual, settings.residual_ratio)
    for j, edge in node.edges.items():
        edge["spent"] += abs(tau[j])
        out = t > 1 and edge["spent"] >= edge["budget"]
        moves = abs(node.f - before) > settings.budget_trigger
        edge["eta"] = next_penalty(scheme, settings, t, edge, tau[j], node.balance)
        edge["used_up"] = int(out and not moves)
        if out and moves:  # equation (10)
            edge["raised"] += 1
            edge["budget"] += settings.budget_decay ** edge["raised"] * settings.budget0


def adapt_snap(node: Node, t: int, settings: Settings) -> None:
    """Adapt the penalties of one node's edges by `snap`, in every third iteration."""
    if t:
        node.f = objective(node.theta, node.samples, node.beliefs)
    if t % 3:
        return
    budget = settings.budget0, settings.budget_decay, settings.budget_trigger
    for j, edge in node.edges.items():
        now = stack(node.anchors[j]), stack(node.multipliers[j])
        if t:
            adapt_edge(edge, *now, *node.before[j], *budget)
        node.before[j] = now


def run(
    shards: Sequence[NDArray], neighbours: Sequence[Sequence[int]],
    theta0: Sequence[Theta], scheme: str, settings: Settings, n_iterations: int,
) -> dict[str, NDArray]:  # fmt: skip
    """Run Algorithm 1 and return what every iteration left behind.

    By iteration and node: ``W`` (T, J, D, M), ``mu`` (T, J, D), ``a``, ``f``,
    ``primal``, ``dual`` (T, J). By iteration and directed edge, sorted: ``eta`` (set at
    the end of the iteration), ``spent``, ``budget``, ``raised``, ``used_up`` (T, E),
    ``multipliers`` (T, E, size).
    """
    ids = range(len(shards))
    nodes = [prime(i, shards, neighbours, theta0, settings) for i in ids]
    if scheme == "snap":
        for (i, j), eta in first_penalties(neighbours, settings.curvature).items():
            nodes[i].edges[j]["eta"] = nodes[i].used[j] = eta
        for node in nodes:
            adapt_snap(node, 0, settings)
    is_own = settings.coupling == "own" or scheme in AGREEING
    balance = 1.0  # of all nodes, by the residuals of the last iteration
    rows = []
    for t in range(1, n_iterations + 1):
        for node in nodes:
            solve_locally(node, settings)
        # One message from j to each neighbour i: theta_j, and eta_ji as j set it.
        sent = {(i, j): nodes[i].edges[j]["eta"] for i in ids for j in neighbours[i]}
        for node, near in zip(nodes, neighbours, strict=True):
            receive(node, {j: nodes[j].theta for j in near}, settings.relaxation)
            if scheme == "snap":
                adapt_snap(node, t, settings)
                continue
            if scheme == "global_balance":
                node.balance = balance
            adapt(node, t, scheme, settings)
        primal = length([node.primal for node in nodes])
        dual = length([node.dual for node in nodes])
        balance = residual_balance(primal, dual, settings.residual_ratio)
        rows.append(snapshot(nodes))
        for (i, j), eta in sent.items():
            mine = nodes[i].edges[j]["eta"]
            nodes[i].used[j] = mine if is_own else (eta + sent[j, i]) / 2
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def snapshot(nodes: Sequence[Node]) -> dict[str, list]:
    edges = [edge for node in nodes for edge in node.edges.values()]
    multipliers = [each for node in nodes for each in node.multipliers.values()]
    return {
        **{name: [getattr(n.theta, name) for n in nodes] for name in Theta._fields},
        **{name: [getattr(n, name) for n in nodes] for name in ("f", "primal", "dual")},
        **{name: [edge[name] for edge in edges] for name in start_edge(0.0, 0.0)},
        "multipliers": list(map(stack, multipliers)),
    }
