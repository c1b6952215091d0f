"""Who is faster per iteration, and who sends less? dadmm beside its peers.

    python -m benchmarks.peers.compare [--rounds 15] [--cache DIR] [--csv FILE]
                                       [--no-wire] [--quick]

Makes an environment for each program under the cache, runs all of them in turns on the
same problem, prints commands and a table with versions, and writes a row for each.
Needs numpy, a package index and Linux.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import problem
from benchmarks.peers.environments import ENVIRONMENTS, Missing, ensure
from benchmarks.peers.rows import compare, row_of
from benchmarks.shared.commands import (
    RESULTS,
    ROOT,
    on_hosts,
    parser_of,
    print_markdown,
    say,
    variables,
)
from benchmarks.shared.experiment import write_rows

HERE = Path(__file__).resolve().parent
TURNS = ("-W", "ignore", "-m", "mpi4py", str(HERE / "turns.py"))
QUIET = 0.1  # share of the cores that other programs may use in a round
ENOUGH = 5  # rounds


class Entry(NamedTuple):
    """A program and a method, with the setting that `tuning.py` finds best for it."""

    program: str
    method: str
    setting: float | None
    timed: int  # iterations of a timed block, of 2 s or so on 20 ranks
    counted: int  # iterations of the run that counts bytes and errors
    wired: tuple[int, int]  # iterations of the two runs over the counted network

    def word(self, iterations: int) -> str:
        """Return a block of so many iterations, for `turns.py`."""
        return f"{self.program}:{self.method}:{self.setting or ''}:{iterations}"


ENTRIES = (
    Entry("disropt", "admm", 20.0, 15, 150, (10, 40)),
    Entry("disropt", "tracking", 0.0008, 40, 1000, (20, 80)),
    Entry("mpi-sppy", "ph", 40.0, 20, 60, (10, 40)),
    Entry("dadmm", "fixed", 25.0, 500, 1000, (100, 400)),
    Entry("dadmm", "snap", None, 500, 1000, (100, 400)),
)


class Bench:
    """Starts programs, and prints the commands."""

    def __init__(self, pythons: dict[str, Path]) -> None:
        self.pythons = pythons

    def start(self, command: Sequence[str]) -> list[dict]:
        say(shlex.join(command).replace(f"{ROOT}/", ""))
        ended = subprocess.run(
            command, env=variables(), timeout=1200, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    def python(self, program: str) -> Path:
        return self.pythons["dadmm" if program == "dadmm" else "ranks"]

    def ranks(self, program: str, nodes: int, *words: str) -> list[dict]:
        python = self.python(program)
        launch = [str(python.with_name("mpiexec")), "-n", str(nodes), str(python)]
        return self.start([*launch, *TURNS, *words])

    def turns(self, nodes: int, rounds: int) -> list[list[dict]]:
        """Return the timed blocks of each entry, round by round."""
        more = 1 if nodes > problem.CORES else 8  # blocks of a length that can be timed
        words = [entry.word(entry.timed * more) for entry in ENTRIES]
        rows = self.ranks("all", nodes, "--rounds", str(rounds + 1), *words)
        return by_entry(rows, len(ENTRIES))

    def wire(self, entry: Entry, nodes: int) -> float:
        """Return the bytes per iteration that interfaces sent, of all ranks.

        Each rank is a host of its own, and what start-up sends is taken away by the
        difference of a long run and a short one.
        """
        python = str(self.python(entry.program))
        words = ["--hosts", str(nodes), "-n", str(nodes), "--command"]
        sent = []
        for iterations in entry.wired:
            job = [python, *TURNS, entry.word(iterations)]
            hosts = on_hosts(words, job, 1200, python).values()
            sent.append(sum(host["tx_bytes"] for host in hosts))
        return (sent[1] - sent[0]) / (entry.wired[1] - entry.wired[0])


def by_entry(rows: Sequence[dict], width: int) -> list[list[dict]]:
    """Return the blocks of each entry from all blocks, ``width`` of them a round.

    Without the first round, which warms up, and without those in which other programs
    used much of the cores, if enough remain.
    """
    rounds = [rows[k : k + width] for k in range(width, len(rows), width)]
    calm = [r for r in rounds if all(block["others_share"] < QUIET for block in r)]
    say(f"{len(calm)} of {len(rounds)} rounds were quiet")
    kept = calm if len(calm) >= min(ENOUGH, len(rounds)) else rounds
    return [list(blocks) for blocks in zip(*kept, strict=True)]


def place(where: str, blocks: Iterable[dict]) -> str:
    """Return where blocks ran, and that the machine was busy if it was.

    Programs that spin while they wait get more of a busy machine than those that sleep,
    so that its ratios are not those of a quiet one.
    """
    calm = all(block["others_share"] < QUIET for block in blocks)
    return where if calm else f"{where}, busy"


def on_ranks(bench: Bench, nodes: int, rounds: int, wire: bool) -> list[dict[str, Any]]:
    timed, rows = bench.turns(nodes, rounds), []
    where = place(f"MPI, {nodes} ranks", chain(*timed))
    for entry, blocks in zip(ENTRIES, timed, strict=True):
        words = ("--count", entry.word(entry.counted))
        (counted,) = bench.ranks(entry.program, nodes, *words)
        wired = bench.wire(entry, nodes) if wire else None
        rows.append(row_of(where, blocks, counted, wired))
        say(f"{where}: {entry.program} {entry.method}")
    return rows


def in_process(bench: Bench, rounds: int) -> list[dict[str, Any]]:
    """Return a row for decent-bench and for each scheme of dadmm, in one process."""
    fixed = next(e for e in ENTRIES if e.method == "fixed")
    python, script = str(bench.pythons["decent"]), str(HERE / "decent_ring.py")
    words = ["--setting", str(fixed.setting), "--rounds", str(rounds + 1)]
    found = bench.start([python, script, *words])
    counted = [row for row in found if "errors" in row]
    timed = by_entry([row for row in found if "errors" not in row], len(counted))
    where = place("one process", chain(*timed))
    pairs = zip(timed, counted, strict=True)
    return [row_of(where, blocks, each, None) for blocks, each in pairs]


def main() -> None:
    parser = parser_of(__doc__)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    add = parser.add_argument
    add("--rounds", type=int, default=15, help="of timed blocks in turns")
    add("--cache", type=Path, default=cache / "dadmm-peers", help="of environments")
    add("--csv", type=Path, default=RESULTS / "peers.csv")
    add("--no-wire", action="store_true", help="do not count what interfaces send")
    add("--quick", action="store_true", help="a look: three rounds, 20 ranks only")
    chosen = parser.parse_args()
    pythons = {}
    for name in ENVIRONMENTS:
        try:
            pythons[name] = ensure(name, chosen.cache)
        except Missing as reason:
            say(f"without {name}: {reason}")
    bench = Bench(pythons)
    rounds = 3 if chosen.quick else chosen.rounds
    rows = []
    if {"dadmm", "ranks"} <= set(pythons):
        rows += on_ranks(bench, problem.NODES, rounds, not chosen.no_wire)
        rows += [] if chosen.quick else on_ranks(bench, 2, rounds, False)
    if "decent" in pythons:
        rows += in_process(bench, rounds)
    if not rows:
        raise SystemExit("no environment could be made; see above")
    compare(rows)
    told = [c for c in rows[0] if c not in ("nodes", "all_ms")]
    print_markdown(told, ([row[c] for c in told] for row in rows))
    write_rows(rows, chosen.csv)


if __name__ == "__main__":
    main()
