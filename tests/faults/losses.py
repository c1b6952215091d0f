"""Judge runs whose survivors go on: each part must find the optimum of its own data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from faults.cases import Case
from faults.jobs import MPI, Job
from faults.strikes import Fault
from faults.table import HANG, LOST, MISSED, SURVIVED, UNCLEAR, WRONG

from dadmm import Topology, assemble, solve
from dadmm.config import RunConfig
from dadmm.world import Alone

CLOSE = 1e-4  # relative distance from the optimum, for a tolerance of 1e-7


def judge_loss(
    case: Case, mpi: MPI, run: Path, name: str, fault: Fault
) -> tuple[str, str]:
    """Run a case that loses ranks; return its outcome and what was seen."""
    options = ("--with-ft", "ulfm")
    arguments = [*case.settings, *case.saving, "--quiet", "--on-failure", "continue"]
    arguments += ["--out", str(run)]
    job = Job(mpi, case.ranks, arguments, run.parent, name, fault.plan, options)
    try:
        ended = job.end()
    finally:
        job.sweep()
    tail = ended.err[-2000:]
    if ended.hung or ended.left:
        return HANG, f"still running after its time: {tail}"
    if "Traceback" in ended.err:
        return UNCLEAR, f"a traceback: {tail}"
    dead = sorted(int(k) for k in fault.plan)
    folders = [run, *sorted(run.glob("part-*"))]
    found = [folder for folder in folders if (folder / "summary.json").exists()]
    told = f"code {ended.code}, {'; '.join(ended.said)}"
    if not found:
        return LOST, f"{told}; no results: {tail}"
    return _judge_parts(case, dead, found, told)


def _judge_parts(
    case: Case, dead: list[int], folders: list[Path], told: str
) -> tuple[str, str]:
    """Compare the results of each part with the optimum of its data."""
    seen: list[int] = []
    lost: set[int] = set()
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        lost |= set(summary["lost_nodes"])
        nodes = nodes_of(folder)
        seen += nodes
        if not summary["converged"]:
            return WRONG, f"{told}; nodes {nodes} ended by {summary['reason']}"
        far = distance(case, nodes, folder)
        told += f"; nodes {nodes} are {far:.0e} from the optimum of their data"
        if not far < CLOSE:
            return WRONG, told
    alive = sorted(set(range(case.ranks)) - lost)
    if sorted(seen) != alive or not lost <= set(dead):
        return LOST, f"{told}; there are results of nodes {sorted(seen)} only"
    if not lost:
        return MISSED, told
    return SURVIVED, told


def nodes_of(folder: Path) -> list[int]:
    """Return the nodes in the last rows of a history."""
    rows = np.loadtxt(
        folder / "history.csv", delimiter=",", skiprows=1, usecols=(0, 1), ndmin=2
    ).astype(int)
    return sorted(rows[rows[:, 0] == rows[-1, 0], 1].tolist())


def distance(case: Case, nodes: list[int], folder: Path) -> float:
    """Return how far the worst node is from the optimum of these nodes' data."""
    config = RunConfig.from_argv([*case.settings, "--nodes", str(case.ranks)]).config
    samples, _ = assemble.shards(Alone(), config, case.ranks)
    problems = assemble.problems(config, samples, case.ranks)
    left = [problems[i] for i in nodes]
    best = solve(
        left, Topology.complete(len(left)), tolerance=1e-9, absolute_tolerance=1e-12,
        max_iter=20_000, record=False,
    )  # fmt: skip
    parts = best.layout.views(best.theta)._asdict()
    goal = {name: part.mean(axis=0) for name, part in parts.items()}
    with np.load(folder / "result.npz") as file:
        off = [(file[k] - v).reshape(len(nodes), -1) for k, v in goal.items()]
    length = np.linalg.norm(np.concatenate([v.ravel() for v in goal.values()]))
    return float(np.linalg.norm(np.hstack(off), axis=1).max() / length)
