"""What does our exchange cost beyond the best that MPI's own calls can do?

    python -m benchmarks.bench_exchange [--network FILE]
    mpiexec -f hosts -n 20 python -m benchmarks.bench_exchange    # these ranks only

Every swap of messages with the neighbours of a graph is made by `MPIExchange` and by
bare calls of MPI (`transports.py`), in turns within one job; what counts is the median
of the ratios. Without a launcher jobs of 2 and of 20 ranks are started: one rank per
core here, and ten. Beside them, messages that go to and fro between two ranks. Those of
the smallest job have the class of their link, so that `--network`, and `python -m
dadmm calibrate` on the rows, make of them a network for `dadmm replay`.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.shared.commands import (
    RESULTS,
    on_ranks,
    parser_of,
    print_markdown,
    say,
)
from benchmarks.shared.experiment import write_rows
from dadmm.comm.launch_link import rank_and_size
from dadmm.timing.calibrate import calibrated

RANKS = (2, 20)
GRAPHS = ("ring", "circulant", "complete")
SIZES = (64, 1024, 16384, 131072, 1048576)
ROUNDS = 31
AIM = 1.2
LIMIT = 1200  # seconds of a job


def job(ranks: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    graphs = given.graphs if ranks > 2 else given.graphs[:1]
    choices = ["--graphs", *graphs, "--sizes", *map(str, given.sizes)]
    choices += ["--rounds", str(given.rounds)]
    # mpi4py's runner: an error ends the job
    program = ("-m", "mpi4py", "-m", "benchmarks.bench_exchange")
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/rows.json"
        on_ranks(ranks, *program, *choices, "--rows", file, timeout=LIMIT)
        return json.loads(Path(file).read_text())


def cells(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each job, graph and size; ours with its own wait first."""
    swaps = [row for row in rows if "graph" in row]
    for _, same in groupby(swaps, lambda r: (r["ranks"], r["graph"], r["bytes"])):
        key = lambda r: (r["transport"] != "dadmm", not r["waits_alike"])  # noqa: E731
        yield sorted(same, key=key)


def compared(rows: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield the lines of the table of swaps."""
    for ours, *others in cells(rows):
        bare = (row for row in others if row["transport"] != "dadmm")
        best = max(bare, key=lambda row: row["dadmm_over"])
        pace = ours["degree"] * ours["bytes"] / ours["seconds"] / 1e6
        yield [
            *(ours[k] for k in ("ranks", "graph", "degree", "bytes")),
            f"{ours['seconds'] * 1e6:.1f} ({ours['wait']})", f"{pace:.0f}",
            f"{best['seconds'] * 1e6:.1f} ({best['transport']}, {best['wait']})",
            f"{best['dadmm_over']:.2f}",
        ]  # fmt: skip


def report(rows: list[dict[str, Any]], given: argparse.Namespace) -> None:
    print(f"{rows[0]['mpi']}, mpi4py {rows[0]['mpi4py']}, {os.cpu_count()} cores\n")
    head = ("ranks", "graph", "degree", "bytes", "dadmm, us", "MB/s a rank")
    head += ("best bare, us", "dadmm over it")
    print_markdown(head, compared(rows))
    print()
    print_markdown(
        ("ranks", "link", "bytes", "ping-pong, us", "MB/s"),
        ([row["ranks"], row["class"], row["bytes"], f"{row['seconds'] * 1e6:.1f}",
          f"{row['bytes'] / row['seconds'] / 1e6:.0f}"]
         for row in rows if row["transport"] == "ping-pong"),
    )  # fmt: skip
    # the job with most room for two ranks tells about their link, and no other one
    few = min((row["ranks"] for row in rows if "class" in row), default=0)
    rows = [row | {"class": ""} if row["ranks"] != few else row for row in rows]
    columns = dict.fromkeys(name for row in reversed(rows) for name in row)
    whole = [{name: row.get(name, "") for name in columns} for row in rows]
    write_rows(whole, given.csv)
    ratios = [max(row["dadmm_over"] for row in cell[2:]) for cell in cells(rows)]
    within = sum(ratio <= AIM for ratio in ratios)
    print(f"\n{within} of {len(ratios)} within {AIM} of the best bare exchange")
    if given.network:
        own = [row for row in rows if row.get("class")]
        network = calibrated(own, name=given.network.stem)
        given.network.write_text(network.to_toml(), "utf-8")


def main() -> None:
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--ranks", type=int, nargs="+", default=RANKS, help="of each job")
    add("--graphs", nargs="*", choices=GRAPHS, default=GRAPHS)
    add("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a message")
    add("--rounds", type=int, default=ROUNDS, help="blocks of each transport")
    add("--csv", type=Path, default=RESULTS / "exchange.csv", help="file for the rows")
    add("--network", type=Path, help="file for latency and bandwidth, TOML")
    add("--rows", type=Path, help=argparse.SUPPRESS)  # of a job that we started
    given = parser.parse_args()
    if rank_and_size() is None:
        rows = []
        for ranks in given.ranks:
            say(f"{ranks} ranks, load {os.getloadavg()[0]:.1f}")
            rows += job(ranks, given)
        report(rows, given)
        return
    from benchmarks.shared.transports import MPI, measure  # MPI starts here

    rows = measure(given.graphs, given.sizes, given.rounds)
    if MPI.COMM_WORLD.rank > 0:
        return
    if given.rows:
        given.rows.write_text(json.dumps(rows))
    else:
        report(rows, given)


if __name__ == "__main__":
    main()
