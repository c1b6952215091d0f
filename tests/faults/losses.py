"""Judge runs whose survivors go on: each part must find the optimum of its own data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dadmm import Topology, solve
from dadmm.cli import setup
from dadmm.cli.config import RunConfig
from dadmm.exchange.world import Checks, SerialWorld
from tests.faults.cases import Case
from tests.faults.jobs import MPI, Ended, Job
from tests.faults.strikes import Fault, complete
from tests.faults.table import CLEAR, HANG, LOST, MISSED, SURVIVED, UNCLEAR, WRONG

CLOSE = 1e-4  # relative distance from the optimum, for a tolerance of 1e-7


def judge_loss(
    case: Case, mpi: MPI, run: Path, name: str, fault: Fault
) -> tuple[str, str]:
    """Run a case that loses ranks; return its outcome and what was seen.

    Nobody can go on if a rank dies before the first iteration or after the last one.
    Then one sentence must say so, and the run must go on from its checkpoint.
    """
    begin = [*case.settings, *case.saving, "--out", str(run)]
    ended = _start(case, mpi, run, name, begin, fault)
    broken = _broken(ended)
    if broken is not None:
        return broken
    dead = sorted(int(k) for k in fault.plan)
    told = f"code {ended.code}, {'; '.join(ended.said)}"
    if ended.code == 0:
        return _judge_parts(case, dead, run, told)
    if not (run / "summary.json").exists():
        again = _start(case, mpi, run, name, ["--resume", str(run)], Fault("no fault"))
        told += f" | resumed: code {again.code}, {'; '.join(again.said)}"
        if again.code == 2 and len(again.said) == 1 and not complete(run, case.ranks):
            return CLEAR, told
        broken = _broken(again) or (None if again.code == 0 else (UNCLEAR, told))
        if broken is not None:
            return broken
    outcome, told = _judge_parts(case, [], run, told)
    return (CLEAR if outcome == SURVIVED else outcome), told


def _start(
    case: Case, mpi: MPI, run: Path, name: str, arguments: list[str], fault: Fault
) -> Ended:
    options = ("--with-ft", "ulfm")
    arguments = [*arguments, "--quiet", "--on-failure", "continue"]
    job = Job(mpi, case.ranks, arguments, run.parent, name, fault.plan, options)
    return job.end()


def _broken(ended: Ended) -> tuple[str, str] | None:
    """Return how an end breaks the rule, whatever the results are."""
    tail = ended.err[-2000:]
    if ended.hung or ended.left:
        return HANG, f"still running after its time: {tail}"
    if "Traceback" in ended.err:
        return UNCLEAR, f"a traceback: {tail}"
    errors = [line for line in ended.said if line.startswith("dadmm: error: ")]
    if len(errors) != (ended.code != 0):
        return UNCLEAR, f"code {ended.code}: {tail}"
    return None


def _judge_parts(case: Case, dead: list[int], run: Path, told: str) -> tuple[str, str]:
    """Compare the results of each part with the optimum of its data."""
    folders = [run, *sorted(run.glob("part-*"))]
    folders = [folder for folder in folders if (folder / "summary.json").exists()]
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
    missing = set(range(case.ranks)) - set(seen)  # some died alone, and nobody knows
    if not lost <= missing <= set(dead) or len(set(seen)) < len(seen):
        return LOST, f"{told}; there are results of nodes {sorted(seen)} only"
    if dead and not lost:
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
    alone = SerialWorld()
    samples = setup.shards(alone, config, case.ranks, Checks(alone)).samples
    problems = setup.problems(config, samples, case.ranks)
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
