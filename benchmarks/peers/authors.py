"""dadmm beside the authors' program: the paper's schemes on its synthetic data.

    python -m benchmarks.peers.authors --authors DIR [--rounds 5] [--csv FILE]

DIR is a checkout of https://github.com/changkyu/aaai2016_changkyu, of which nothing is
in this repository. GNU Octave runs it, by `octave/drive.m`; dadmm runs in one process
with the settings that the paper prints, from the same start. Both run a few iterations
in turns, for the time and for how far apart they end; then each until it stops.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.io import loadmat, savemat

import dadmm
from benchmarks.peers.dadmm_ring import Clock
from benchmarks.peers.problem import Watch
from benchmarks.peers.rows import short
from benchmarks.shared.commands import RESULTS, THREADS, parser_of, print_markdown, say
from benchmarks.shared.experiment import ARCHIVE, leave, write_rows
from dadmm.data import datasets
from dadmm.data.shard import split
from dadmm.graphs.topology import GRAPHS, Topology
from dadmm.problems import PPCA, metrics
from dadmm.solver.solve import grouped

DRIVER = Path(__file__).resolve().parent / "octave" / "drive.m"
NEEDED = (
    "software/dplant/dppca_ant.m",
    "software/3rdparty/yoon15iccv/dppca.m",
    "software/3rdparty/yoon15iccv/calc_ppca_max_ssa_gt.m",
    "software/3rdparty/yoon15iccv/calc_ppca_rms.m",
)
NODES, COMPONENTS = 20, 5
NETWORKS = ("ring", "complete")
# Their names of ap and nap are swapped: the one called NAP ends at t_max.
NAMES = {"fixed": "fixed", "ap": "dppca_NAP_homo", "nap": "dppca_AP_homo"}
ITERATIONS = 10  # of a timed block
REPEATS = 20  # of dadmm's block, which is short
# As the paper prints them, with what their program does where it differs: it tries
# neighbours' own parameters, and no budget ever grows.
PRINTED = {"coupling": "own", "probe": "neighbour", "eta0": 10.0, "t_max": 50,
           "budget0": 5.0, "budget_trigger": float("inf"), "relaxation": 1.0,
           "record": False}  # fmt: skip
RULE = {"stopping": "objective", "agreement": "global", "tolerance": 1e-3}
COLUMNS = ("program", "graph", "scheme", "ms_per_iteration", "all_ms", "over_dadmm",
           "others_share", "apart", "stop", "stop_angle", "versions")  # fmt: skip


class Work:
    """The data, a start for every node, and the centralised solution."""

    def __init__(self, seed: int = 0) -> None:
        self.samples, _ = datasets.synthetic(seed=seed)
        self.shards = split(self.samples, NODES)
        self.problems = [PPCA(shard, COMPONENTS) for shard in self.shards]
        self.best = metrics.ppca_reference(self.samples, COMPONENTS).W
        rng = np.random.default_rng([seed, 1])
        drawn = rng.standard_normal((NODES, *self.best.shape))
        self.W, _ = np.linalg.qr(drawn)  # as theirs: orthonormal, mean 0, variance 1
        self.mu, self.a = np.zeros(self.W.shape[:2]), np.ones(NODES)

    @property
    def start(self) -> np.ndarray:
        return flat(self.W, self.mu, self.a)


def flat(W: np.ndarray, mu: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return a row per node: W by rows, mu, a."""
    return np.hstack([W.reshape(len(a), -1), mu, a[:, None]])


def theirs(
    authors: Path, work: Work, graph: Topology, scheme: str, **limits: Any
) -> dict[str, np.ndarray]:
    """Run the authors' program; return what `drive.m` found.

    ``limits`` are iterations, a threshold of the objective's change, the rises of the
    error after which it stops, and the target of angles, each with a default for a
    block of a fixed length.
    """
    edges = np.zeros((NODES, NODES))
    for node, near in enumerate(graph.neighbours):
        edges[node, near] = 1.0
    owner = np.repeat(np.arange(1.0, NODES + 1), [len(s) for s in work.shards])
    job = {"X": work.samples.T, "M": float(COMPONENTS), "V": owner, "E": edges,
           "W": work.W, "mu": work.mu, "a": work.a, "eta0": PRINTED["eta0"],
           "scheme": NAMES[scheme], "iterations": float(ITERATIONS), "threshold": 0.0,
           "rises": np.inf, "target": np.zeros((0, 0))}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder, name)) for name in ("job.mat", "found.mat")]
        savemat(files[0], job | limits)
        command = ["octave-cli", "--norc", "--quiet", str(DRIVER), str(authors), *files]
        ended = subprocess.run(
            command, env={**os.environ, **THREADS}, timeout=3600, text=True,
            capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if ended.returncode or not Path(files[1]).exists():
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            leave(f"Octave could not run the program in {authors}: {last}")
        return loadmat(files[1])


def ours(work: Work, graph: Topology, scheme: str, **settings: Any) -> dadmm.Result:
    chosen = {**PRINTED, "scheme": scheme, "init": work.start, **settings}
    return dadmm.solve(work.problems, graph, **grouped(chosen))


def block(authors: Path, work: Work, graph: Topology, scheme: str) -> dict[str, Any]:
    """Run both for a fixed number of iterations; return times and the difference."""
    watch, before = Watch(), os.times()
    found = theirs(authors, work, graph, scheme)
    clocks = [Clock() for _ in range(REPEATS)]
    for clock in clocks:
        end = {"tolerance": 0.0, "max_iter": ITERATIONS, "callbacks": [clock]}
        same = ours(work, graph, scheme, **end)
    after = os.times()
    children = sum(after[2:4]) - sum(before[2:4])
    share = watch.share(watch.own() + children)
    span = median(clock.last - clock.first for clock in clocks)
    W, mu = found["W"].transpose(2, 0, 1), found["mu"].T
    apart = np.abs(flat(W, mu, found["a"].ravel()) - same.theta).max()
    return {
        "authors": 1e3 * found["seconds"].item() / ITERATIONS,
        "dadmm": 1e3 * span / (ITERATIONS - 1),
        "apart": float(apart / np.abs(same.theta).max()),
        "others_share": share,
        "versions": {"authors": f"Octave {found['octave'][0]}",
                     "dadmm": f"dadmm {dadmm.__version__}; numpy {np.__version__}"},
    }  # fmt: skip


def timed(blocks: list[dict[str, Any]], program: str) -> dict[str, Any]:
    times = [each[program] for each in blocks]
    ratios = [each[program] / each["dadmm"] for each in blocks]
    return {
        "ms_per_iteration": short(median(times)),
        "all_ms": " ".join(str(short(each)) for each in times),
        "over_dadmm": short(median(ratios)),
        "others_share": short(median(each["others_share"] for each in blocks)),
        "apart": blocks[0]["apart"],
        "versions": blocks[0]["versions"][program],
    }


def whole(work: Work, graph: Topology, scheme: str, **settings: Any) -> dict[str, Any]:
    if scheme == "snap":
        result = dadmm.solve(work.problems, graph, record=False, **settings)
    else:
        result = ours(work, graph, scheme, **RULE, max_iter=1000)
    W = result.layout.views(result.theta).W
    angle = float(metrics.subspace_angle(W, work.best).max())  # of the worst node
    return {"stop": result.iterations, "stop_angle": short(angle)}


def their_stop(
    authors: Path, work: Work, graph: Topology, scheme: str
) -> dict[str, Any]:
    """Run the authors' program with both of its rules until it stops."""
    limits = {"iterations": 1000.0, "threshold": 1e-3, "rises": 10.0}
    found = theirs(authors, work, graph, scheme, target=work.best, **limits)
    angle = float(np.degrees(found["angles"].ravel()[-1]))
    return {"stop": int(found["iterations"].item()), "stop_angle": short(angle)}


def snap_rows(work: Work, name: str) -> Iterator[dict[str, Any]]:
    """Yield a row of `snap` for each start."""
    starts = {"same start": work.start, "independent": "independent",
              "merged": "merged"}  # fmt: skip
    for label, init in starts.items():
        place = {"program": "dadmm", "graph": name, "scheme": f"snap, {label}"}
        yield place | whole(work, GRAPHS[name](NODES, 0), "snap", init=init, seed=1)


def rows_of(authors: Path, rounds: int) -> Iterator[dict[str, Any]]:
    work = Work()
    for name in NETWORKS:
        graph = GRAPHS[name](NODES, 0)
        for scheme in NAMES:
            blocks = [block(authors, work, graph, scheme) for _ in range(rounds)]
            stops = {"authors": their_stop(authors, work, graph, scheme),
                     "dadmm": whole(work, graph, scheme)}  # fmt: skip
            for program, stop in stops.items():
                place = {"program": program, "graph": name, "scheme": scheme}
                yield place | timed(blocks, program) | stop
            say(f"{name} {scheme}: {median(b['authors'] for b in blocks):.4g} ms")
        yield from snap_rows(work, name)


def checked(authors: Path) -> Path:
    """Return the folder, or end with a sentence that says what is missing."""
    if shutil.which("octave-cli") is None:
        leave("GNU Octave is missing: install it, on Debian by apt-get install octave")
    missing = [name for name in NEEDED if not (authors / name).is_file()]
    if missing:
        leave(f"{authors} has no {missing[0]}; clone {ARCHIVE} and give its folder")
    return authors.resolve()


def main(argv: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--authors", type=Path, metavar="DIR", required=True)
    parser.add_argument("--rounds", type=int, default=5, help="of blocks in turns")
    parser.add_argument("--csv", type=Path, default=RESULTS / "peers_authors.csv")
    chosen = parser.parse_args(argv)
    if chosen.rounds < 1:
        leave(f"--rounds must be at least 1, got {chosen.rounds}")
    rows = list(rows_of(checked(chosen.authors), chosen.rounds))
    told = [name for name in COLUMNS if name not in ("all_ms", "versions")]
    print_markdown(told, ([row.get(name, "") for name in told] for row in rows))
    write_rows(({name: row.get(name) for name in COLUMNS} for row in rows), chosen.csv)


if __name__ == "__main__":
    main()
