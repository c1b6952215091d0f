"""Is the predicted time of a run the measured one?

    python -m benchmarks.check_model [--runs 5] [--networks rate delay both]

Runs jobs on networks that `benchmarks/netem` makes on this machine, and compares what
they took with what `dadmm.replay` predicts from the rate and the delay that were asked
for. Beside these the model has three things, none of them measured on those runs: what
a message takes on the same hosts without rate and delay (a ping-pong), what it has in
headers (the interfaces' counters), and the burst of the rate's token bucket. The work
of the nodes comes from the run itself, and once more from one without rate and delay.
Runs wait for a machine that is mostly idle, up to ten minutes each.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

import dadmm
from dadmm.timing.calibrate import calibrated
from dadmm.timing.network import Link, Network, Overhead
from dadmm.timing.replay import Replay, replay
from dadmm.timing.trace import Trace

ROOT = Path(__file__).resolve().parent.parent
NETEM = ROOT / "benchmarks" / "emulation"
FRAME, HEADERS, PAYLOAD = 1514, 66, 1448  # of Ethernet; IP and TCP with time stamps
TIMEOUT = 180  # seconds of any job
SIZES = (800, 3200, 12800)  # bytes, of the ping-pong


@dataclass(frozen=True)
class Setting:
    """Hosts with a rate and a delay, and a job on them."""

    name: str
    hosts: int
    ranks: int
    rate: int  # bit/s, 0 for none
    delay: float  # seconds
    job: tuple[str, ...]  # arguments of dadmm.run

    @property
    def burst(self) -> int:
        """Bytes that the token bucket of `emulation.bridge` passes at once."""
        return max(2 * FRAME, int(self.rate / 8 * 2e-3)) if self.rate else 0


def job(topology: str, iterations: int, dimension: int, parts: int) -> tuple[str, ...]:
    """Return the arguments of a D-PPCA run that makes so many iterations."""
    return (
        *("--topology", topology, "--max-iter", str(iterations), "--tolerance", "0"),
        *("--dimension", str(dimension), "--n-components", str(parts)),
        *(
            "--n-samples",
            "400",
            "--no-compare-centralised",
            "--wait",
            "poll",
            "--quiet",
        ),
    )


SETTINGS = (
    Setting("rate", 4, 8, 10**7, 0.0, job("complete", 40, 60, 8)),
    Setting("delay", 4, 4, 0, 20e-3, job("ring", 100, 20, 5)),
    Setting("both", 3, 6, 10**7, 20e-3, job("grid", 60, 60, 8)),
)


class Unavailable(Exception):
    """This machine cannot have such networks; the sentence says why."""


def emulate(setting: Setting, free: bool, *arguments: str) -> None:
    """Run `benchmarks/netem` to its end, with or without rate and delay."""
    limits = [] if free else ["--rate", f"{setting.rate}bit"] * (setting.rate > 0)
    if setting.delay and not free:
        limits += ["--delay", f"{1e3 * setting.delay:g}ms"]
    places = ["--hosts", str(setting.hosts), "-n", str(setting.ranks)]
    command = [sys.executable, str(NETEM), "--python", sys.executable]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [*command, *places, *limits, *arguments],
        env=variables, timeout=TIMEOUT, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode == 2 and "cannot create network namespaces" in done.stderr:
        raise Unavailable(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"{setting.name}: code {done.returncode}: {done.stderr}")


def run(setting: Setting, folder: Path, free: bool = False) -> Trace:
    """Run the job of a setting and return its timing."""
    emulate(setting, free, "--", *setting.job, "--out", str(folder))
    return Trace.read(folder)


class Base:
    """What a message costs on the hosts of a setting without rate and delay.

    Parameters
    ----------
    setting : Setting
    folder : Path
        For files in between.
    """

    def __init__(self, setting: Setting, folder: Path) -> None:
        self.setting, self._folder = setting, folder

    @cached_property
    def links(self) -> dict[str, Link]:
        """Links by class, from a ping-pong within a host and between two."""
        rows = self._folder / "pingpong.csv"
        program = [sys.executable, str(Path(__file__)), "--pingpong", str(rows)]
        emulate(self.setting, True, "--command", "--", *program)
        with open(rows, newline="") as file:
            return dict(calibrated(csv.DictReader(file)).links)

    def sent(self, iterations: int) -> tuple[int, int, float]:
        """Return the bytes on all wires, the messages between hosts, and their size."""
        out, file = self._folder / f"wire-{iterations}", self._folder / "wire.json"
        words = [*self.setting.job, "--max-iter", str(iterations), "--out", str(out)]
        emulate(self.setting, True, "--counters", str(file), "--", *words)
        trace = Trace.read(out)
        wires = Network(self.links).wires(trace.edges, trace.n_nodes, trace.hosts)
        sizes = trace.bytes[:, wires.leaves]
        total = sum(host["tx_bytes"] for host in json.loads(file.read_text()).values())
        return total, np.count_nonzero(sizes), sizes.max()

    @cached_property
    def model(self) -> Network:
        """The network without rate and delay; headers are what the wires had beside."""
        (less, few, _), (more, many, size) = self.sent(10), self.sent(60)
        each = (more - less) / (many - few)
        tried = (Overhead(float(own), HEADERS, PAYLOAD) for own in range(1000))
        best = min(tried, key=lambda overhead: abs(float(overhead.wire(size)) - each))
        return Network(self.links, overhead=best)


def limited(base: Network, setting: Setting) -> Network:
    """Return a network with the rate and the delay that a setting asks for."""
    lan = base.links["lan"]
    slow = replace(lan, latency=lan.latency + setting.delay)
    network = replace(base, links={**base.links, "lan": slow}, name=setting.name)
    if not setting.rate:
        return network
    return replace(network, egress=setting.rate / 8, burst=float(setting.burst))


def pingpong(file: str, repeats: int = 60) -> None:
    """Write half round trips of messages from rank 0 to its neighbour and a far one."""
    from mpi4py import MPI

    from dadmm.exchange.collectives import wait_sleeping
    from dadmm.exchange.mpi_wait import poll

    comm = MPI.COMM_WORLD
    names = comm.allgather(MPI.Get_processor_name())
    peers = {"lan": comm.size - 1}
    if names[1] == names[0]:
        peers["host"] = 1
    rows = []
    for kind, peer in peers.items():
        for size in SIZES:
            wait_sleeping(comm.Ibarrier())
            if comm.rank not in (0, peer):
                continue
            other = peer if comm.rank == 0 else 0
            out, box = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
            send, receive = comm.Send_init(out, other), comm.Recv_init(box, other)
            for k in range(repeats + 5):
                start = perf_counter()
                for request in (send, receive)[:: 1 if comm.rank == 0 else -1]:
                    request.Start()
                    poll([request])
                if k >= 5:  # the first ones connect
                    rows.append((kind, size, (perf_counter() - start) / 2))
    wait_sleeping(comm.Ibarrier())
    if comm.rank == 0:
        with open(file, "w", newline="") as out_file:
            csv.writer(out_file).writerows([("class", "bytes", "seconds"), *rows])


def compare(
    setting: Setting, network: Network, folder: Path, number: int
) -> dict[str, Any]:
    """Return what a run took and what was predicted, as a row."""
    idle = rest()
    measured = run(setting, folder / f"run-{number}")
    free = run(setting, folder / f"free-{number}", free=True)
    own, other = (replay(trace, network, observe=True) for trace in (measured, free))
    return {
        "network": setting.name,
        "hosts": setting.hosts,
        "ranks": setting.ranks,
        "rate": setting.rate,
        "delay": setting.delay,
        "run": number,
        "iterations": len(measured.solve),
        "measured": round(measured.seconds, 5),
        "predicted": round(own.loop_seconds, 5),
        "predicted_from_free": round(other.loop_seconds, 5),
        "free": round(free.seconds, 5),
        "network_share": round(network_share(own), 4),
        "latency": round(network.links["lan"].latency, 7),
        "message_header": network.overhead.message,
        "cores": os.cpu_count(),
        "idle": round(idle, 2),  # just before the run, of all cores
        "dadmm": dadmm.__version__,
    }


def rest(least: float = 0.6, patience: float = 600.0) -> float:
    """Wait until the cores are idle enough; return which part of a second they were.

    Where others keep them busy the emulated switch is late, and so are the ranks.
    """
    end = perf_counter() + patience
    while True:
        before = _clicks()
        sleep(1.0)
        spent = _clicks() - before
        idle = float(spent[3] / max(spent.sum(), 1))
        if idle > least or perf_counter() > end:
            return idle


def _clicks() -> np.ndarray:
    """Return the clock ticks of all cores by what they did; the fourth is nothing."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    return np.array(words[1:9], dtype=float)


def network_share(found: Replay) -> float:
    """Return which part of the modelled time is the network's."""
    parts = found.breakdown
    return (parts.transmission + parts.queueing + parts.latency) / found.seconds


def check(setting: Setting, runs: int, folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a setting."""
    folder.mkdir(parents=True)
    rest()
    network = limited(Base(setting, folder).model, setting)
    return [compare(setting, network, folder, k) for k in range(runs)]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line for each network: medians over its runs."""
    lines = ["network  network share  measured  predicted  off by  from a free run"]
    for name in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == name]
        keys = ("predicted", "predicted_from_free")
        off = [median(_ratios(own, key)) - 1 for key in keys]
        share, measured, predicted = (
            median(row[key] for row in own)
            for key in ("network_share", "measured", "predicted")
        )
        lines.append(
            f"{name:7}  {100 * share:11.0f} %  {measured:7.3f}s  {predicted:8.3f}s  "
            f"{100 * off[0]:+5.1f}%  {100 * off[1]:+14.1f}%"
        )
    return "\n".join(lines)


def _ratios(rows: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [row[key] / row["measured"] for row in rows]


def main(argv: Sequence[str] | None = None) -> int:
    """Check the model on all networks, print a table and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", default=str(ROOT / "benchmarks/results/model.csv"))
    parser.add_argument("--keep", metavar="DIR", help="keep the runs in this folder")
    parser.add_argument("--pingpong", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.pingpong:
        pingpong(given.pingpong)
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given.keep or scratch)
        try:
            for setting in SETTINGS:
                if setting.name in given.networks:
                    rows += check(setting, given.runs, folder / setting.name)
                    print(table(rows), flush=True)
        except Unavailable as reason:
            print(f"skipped: {reason}", file=sys.stderr)
            return 2
    with open(given.out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
