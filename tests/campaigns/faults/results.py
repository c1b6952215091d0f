"""Results of runs on disk, compared with those of an undisturbed run."""

import contextlib
import io
from pathlib import Path

import numpy as np

import dadmm.run
from dadmm import Topology
from dadmm.cli import setup
from dadmm.comm.world import Checks, World
from dadmm.runs.config import RunConfig
from tests.campaigns.faults.cases import Case
from tests.support.runs import SINCE_RESUME, arrays_of, history_of, summary_of
from tests.support.solving import solve

SUMMARY = ("iterations", "converged", "messages", "bytes", "n_nodes", "reason")


def reference(case: Case, out: Path) -> None:
    """Run a case in this process, with nothing in its way."""
    words = f"{case.settings} --nodes {case.nodes} --no-checkpoint --quiet --out"
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = dadmm.run.main([*words.split(), str(out)])
    if code != 0:
        raise RuntimeError(f"{case} cannot be run at all: {said.getvalue()}")
    if summary_of(out)["reason"] == "signal":
        raise KeyboardInterrupt  # which the run took for its own


def differences(whole: Path, again: Path) -> list[str]:
    """Return in what the results of two runs differ, times aside."""
    found = []
    for path in sorted(whole.iterdir()):
        name, mine = path.name, again / path.name
        if name.endswith(".csv"):
            found += [name] if rows_of(again, path) != history_of(whole, name) else []
        elif name != "config.toml" and not mine.exists():
            found.append(f"{name} (missing)")
        elif name.endswith(".npz"):
            a, b = bits_of(mine), bits_of(path)
            found += [f"{name}:{k}" for k in sorted(a | b) if a.get(k) != b.get(k)]
        elif name == "summary.json":
            one, other = summary_of(again), summary_of(whole)
            if (one["reason"], other["reason"]) == ("signal", "max_iter"):
                one["reason"] = "max_iter"  # a signal came in the last iteration
            found += [f"{name}:{key}" for key in SUMMARY if one[key] != other[key]]
    return found


def bits_of(file: Path) -> dict[str, object]:
    with np.load(file) as arrays:
        known = {k: arrays[k] for k in arrays.files if k not in SINCE_RESUME}
    return {k: (a.dtype, a.shape, a.tobytes()) for k, a in known.items()}


def rows_of(run: Path, like: Path) -> list[list[str]]:
    """Return the rows of a file as `history_of` does.

    For want of room, a run may have left the last of them in parts.
    """
    file, keys = run / like.name, 3 if like.stem == "edges" else 2
    key = lambda line: [int(word) for word in line.split(",")[:keys]]  # noqa: E731
    parts = [path.read_text() for path in run.glob(f"parts/{like.stem}-*.csv")]
    lines = [line.rpartition(",")[0] for text in parts for line in text.splitlines()]
    if lines:
        header, *_ = like.read_text().splitlines()
        before = file.read_text().splitlines()[1:] if file.exists() else []
        with contextlib.suppress(ValueError):  # of a line that is incomplete
            first, last = min(map(key, lines))[0], max(map(key, lines))[0]
            if before and key(before[-1])[0] == last:  # parts were being removed
                return history_of(run, like.name)
            lines += [line for line in before if key(line)[0] < first]
            file.write_text("\n".join([header, *sorted(lines, key=key), ""]))
    return history_of(run, like.name) if file.exists() else []


def last_nodes(folder: Path) -> list[int]:
    """Return the nodes with a row of the last iteration."""
    if (folder / "history.csv").exists():
        rows = history_of(folder)[1:]
    else:  # a rank died before rows were merged
        parts = sorted(folder.glob("parts/history-*.csv"))
        rows = [line.split(",") for part in parts for line in part.open()]
        rows.sort(key=lambda row: int(row[0]))
    return sorted(int(row[1]) for row in rows if row[0] == rows[-1][0])


def distance(case: Case, nodes: list[int], folder: Path) -> float:
    """Return how far the worst node is from the optimum of these nodes' data."""
    words = f"{case.settings} --nodes {case.nodes}"
    config, alone = RunConfig.from_argv(words.split()).config, World()
    data = setup.shards(alone, config, Topology.complete(case.nodes), Checks(alone))
    problems = setup.problems(config, data, case.nodes)
    best = solve(
        [problems[i] for i in nodes], Topology.complete(len(nodes)), tolerance=1e-9,
        absolute_tolerance=1e-12, max_iter=20_000, record=False,
    )  # fmt: skip
    goal = best.theta.mean(axis=0)
    views, found = best.layout.views(best.theta)._asdict(), arrays_of(folder)
    theta = np.hstack([found[name].reshape(len(nodes), -1) for name in views])
    return float(np.linalg.norm(theta - goal, axis=1).max() / np.linalg.norm(goal))
