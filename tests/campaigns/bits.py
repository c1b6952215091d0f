"""Record the bits of about 150 runs, or compare them with those of another state.

    python -m tests.campaigns.bits FILE.json             # before a change
    python -m tests.campaigns.bits FILE.json --compare   # after it

Every array of result.npz, the rows of history.csv and edges.csv without times, the
model and the facts of summary.json are entries of a run. Without --compare the file
is written; with it, each entry that differs is printed, and the exit code is 1.
"""

import argparse
import contextlib
import csv
import hashlib
import io
import json
import multiprocessing
import os
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np

SCHEMES = ("snap", "fixed", "vp", "ap", "nap", "vp_ap", "vp_nap", "global_balance")
GRAPHS = ("complete", "cluster", "ring", "star", "random-geometric")
CONVEX = ("least_squares", "ridge", "lasso", "elastic_net", "huber")
CLASSES = {"logistic": "ill", "multinomial": "ward", "poisson": "visits"}
SENDING = (
    "--payload float32", "--payload float16", "--payload quantised:4",
    "--payload topk:0.2", "--censor 0.1", "--send-every 3", "--edge-sleep 0.2",
    "--schedule matchings", "--schedule random:0.5", "--coupling own",
    "--agreement global", "--stopping residuals", "--stopping objective",
    "--relaxation 1", "--eta0 3", "--probe neighbour", "--scheme fixed --eta0 1",
    "--scheme fixed --drop-probability 0.1", "--topology star,chain",
    "--record-every 3",
)  # fmt: skip
FACTS = ("status", "reason", "iterations", "messages", "bytes", "objective", "start")
FACTS += ("certificate", "subspace", "consensus", "penalties", "coefficients", "scores")
TIMES = ("seconds", "overflow")


def lines() -> dict[str, str]:
    """Return the settings of each run by its name."""
    found: dict[str, str] = {}
    for scheme, graph in product(SCHEMES, GRAPHS[:3]):
        settings = f"--nodes 8 --max-iter 40 --scheme {scheme} --topology {graph}"
        found[f"ppca {scheme} {graph}"] = settings
        found[f"raw {scheme} {graph}"] = f"{settings} --coordinates raw"
    for graph, init in product(GRAPHS, ("merged", "shared")):
        words = f"--nodes 7 --topology {graph} --init {init} --bound-angle"
        found[f"ppca {init} {graph}"] = words
    for scheme in SCHEMES:
        words = f"--nodes 5 --missing-fraction 0.1 --max-iter 30 --scheme {scheme}"
        found[f"gaps {scheme}"] = words
        found[f"sfm {scheme}"] = f"--problem sfm --max-iter 30 --scheme {scheme}"
    for problem, coordinates in product(CONVEX, ("metric", "raw")):
        words = f"--problem {problem} --data table.csv --target y --nodes 6"
        words += " --leave-out ill,visits --topology ring"
        found[f"{problem} {coordinates}"] = f"{words} --coordinates {coordinates}"
    for problem, target in CLASSES.items():
        words = f"--problem {problem} --data table.csv --target {target} --nodes 5"
        for scheme in ("snap", "nap", "vp"):
            found[f"{problem} {scheme}"] = f"{words} --scheme {scheme}"
    for more in SENDING:
        linear = "--problem ridge --data table.csv --target y --topology cluster"
        found[f"ridge {more}"] = f"{linear} --nodes 8 --max-iter 60 {more}"
        found[f"ppca {more}"] = f"--nodes 8 --topology ring --max-iter 50 {more}"
    return found


def write_table(folder: Path) -> None:
    random = np.random.default_rng(3)
    x = random.normal(size=(240, 4)) * [1, 20, 0.01, 300] + [0, 5, 0, -100]
    y = x @ [1.0, 0.1, 30, 0.02] + random.normal(size=240)
    wards = np.where(x[:, 0] > 0.4, "north", np.where(x[:, 0] < -0.4, "south", "west"))
    ill, visits = (y > y.mean()).astype(int), random.poisson(2 + (x[:, 0] > 0))
    columns = zip(*x.T, wards, ill, visits, y, strict=True)
    with open(folder / "table.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("a", "b", "c", "d", "ward", "ill", "visits", "y"))
        rows.writerows(columns)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def entries(out: Path) -> dict[str, str]:
    """Return a digest of each part of a run's results."""
    found = {}
    with np.load(out / "result.npz") as arrays:
        for name in arrays.files:
            if not name.startswith(TIMES) and not name.endswith("seconds"):
                found[name] = digest(arrays[name].tobytes())
    for name in ("history.csv", "edges.csv"):
        if (out / name).exists():
            rows = list(csv.DictReader((out / name).open(newline="")))
            timed = [key for key in rows[0] if "seconds" in key]
            for row, key in product(rows, timed):
                del row[key]
            found[name] = digest(json.dumps(rows).encode())
    summary = json.loads((out / "summary.json").read_text())
    for fact in FACTS:
        found[fact] = digest(json.dumps(summary.get(fact), sort_keys=True).encode())
    return found


def command(*words: str) -> str:
    """Run the command line; return its last line if it is refused, or ""."""
    import dadmm.run

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = dadmm.run.main(words)
    return said.getvalue().splitlines()[-1] if code else ""


def run(case: tuple[str, str]) -> tuple[str, dict[str, str]]:
    """Do one run, and one that is stopped half-way and resumed."""
    name, line = case
    out = Path("runs") / name.replace(" ", "_").replace("/", "_")
    words = [*line.split(), "--record-edges"]
    if refused := command(*words, "--out", str(out)):
        return name, {"refused": refused}
    found = entries(out)
    if name.startswith(("raw nap", "ppca snap", "gaps", "ridge", "sfm vp")):
        half = Path(f"{out}-half")
        limit = words[words.index("--max-iter") + 1] if "--max-iter" in words else 1000
        command(*words, "--out", str(half), "--checkpoint", "--max-iter", "7")
        if not command("--resume", str(half), "--max-iter", str(limit)):
            found |= {f"resumed {key}": value for key, value in entries(half).items()}
    return name, found


def record() -> dict[str, dict[str, str]]:
    """Do all runs, two at a time, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_table(Path(folder))
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            return dict(sorted(pool.map(run, lines().items(), chunksize=4)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true")
    chosen = parser.parse_args()
    file = chosen.file.resolve()
    found = record()
    n_entries = sum(map(len, found.values()))
    if not chosen.compare:
        file.write_text(json.dumps(found, indent=1))
        print(f"{n_entries} entries of {len(found)} runs in {file}")
        return 0
    known = json.loads(file.read_text())
    other = [
        f"{name}: {key}"
        for name in sorted(known.keys() | found.keys())
        for key in known.get(name, {}).keys() | found.get(name, {}).keys()
        if known.get(name, {}).get(key) != found.get(name, {}).get(key)
    ]
    print(*other, f"{n_entries - len(other)} of {n_entries} entries equal", sep="\n")
    return int(bool(other))


if __name__ == "__main__":
    sys.exit(main())
