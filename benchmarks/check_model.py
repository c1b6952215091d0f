"""Is the predicted time of a run the measured one?

    python -m benchmarks.check_model [--runs 5] [--networks rate delay both]

Runs jobs on networks that `benchmarks/netem` makes on this machine, and compares what
they took with what `dadmm replay` predicts from the rate and the delay that were asked
for. The model has three more numbers, none of them measured on those runs: what a
message takes on the same hosts without rate and delay (a ping-pong), what it has in
headers (the interfaces' counters), and the burst of the rate's token bucket. The work
of the nodes comes from the run itself. Runs wait for a machine that is mostly idle, up
to ten minutes each.
"""

import dataclasses
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple

import numpy as np

import dadmm
from benchmarks.peers.problem import CORES, busy_seconds
from benchmarks.shared.commands import (
    RESULTS,
    HostsError,
    on_hosts,
    parser_of,
    print_markdown,
    say,
)
from benchmarks.shared.experiment import write_rows
from dadmm.timing import calibrate
from dadmm.timing.network import Network, Overhead
from dadmm.timing.replay import Replay, Trace

FRAME, HEADERS, PAYLOAD = 1514, 66, 1448  # of Ethernet; IP and TCP with time stamps
HEAD = ("network", "network share", "measured, s", "predicted, s", "off by")
SIZES = "800 3200 12800"  # bytes, of the ping-pong


class Setting(NamedTuple):
    """Hosts with a rate and a delay, and a job on them."""

    name: str
    hosts: int
    ranks: int
    rate: int  # bit/s, 0 for none
    delay: float  # seconds
    job: tuple[str, ...]  # arguments of dadmm.run


def job(topology: str, iterations: int, dimension: int, parts: int) -> tuple[str, ...]:
    line = f"--topology {topology} --max-iter {iterations} --tolerance 0 --quiet "
    line += f"--dimension {dimension} --n-components {parts} --n-samples 400 "
    return tuple(f"{line} --no-compare-centralised --wait poll".split())


SETTINGS = (
    Setting("rate", 4, 8, 10**7, 0.0, job("complete", 40, 60, 8)),
    Setting("delay", 4, 4, 0, 20e-3, job("ring", 100, 20, 5)),
    Setting("both", 3, 6, 10**7, 20e-3, job("grid", 60, 60, 8)),
)


def emulate(setting: Setting, free: bool, *words: str, command: bool = False) -> int:
    """Run a job with or without rate and delay; return the bytes on all wires."""
    options = ["--hosts", str(setting.hosts), "-n", str(setting.ranks)]
    if setting.rate and not free:
        options += ["--rate", f"{setting.rate}bit"]
    if setting.delay and not free:
        options += ["--delay", f"{1e3 * setting.delay:g}ms"]
    sent = on_hosts([*options, *["--command"] * command], words)
    return sum(host["tx_bytes"] for host in sent.values())


def base(setting: Setting, folder: Path) -> Network:
    """Return the network of a setting without rate and delay.

    Links are those of a ping-pong within a host and between two; headers are what the
    wires had besides the payload.
    """
    rows = folder / "pingpong.csv"
    words = f"-m benchmarks.bench_exchange --csv {rows} --sizes {SIZES} --graphs"
    emulate(setting, True, sys.executable, *words.split(), command=True)
    links = calibrate.calibrated(calibrate.read(rows)).links
    found = []
    for iterations in (10, 60):
        out = folder / f"wire-{iterations}"
        words = (*setting.job, "--max-iter", str(iterations), "--out", str(out))
        total, trace = emulate(setting, True, *words), Trace.read(out)
        wires = Network(links).wires(trace.edges, trace.n_nodes, trace.hosts)
        sizes = trace.bytes[:, wires.leaves]
        found.append((total, np.count_nonzero(sizes), sizes.max()))
    (less, few, _), (more, many, size) = found
    each = (more - less) / (many - few)
    tried = (Overhead(float(own), HEADERS, PAYLOAD) for own in range(1000))
    best = min(tried, key=lambda overhead: abs(float(overhead.wire(size)) - each))
    return Network(links, overhead=best)


def limited(base: Network, setting: Setting) -> Network:
    """Return a network with the rate and the delay that a setting asks for."""
    lan = base.links["lan"]
    slow = dataclasses.replace(lan, latency=lan.latency + setting.delay)
    found = dataclasses.replace(base, links={**base.links, "lan": slow})
    if not setting.rate:
        return found
    burst = max(2 * FRAME, int(setting.rate / 8 * 2e-3))  # as in emulation.bridge
    return dataclasses.replace(found, egress=setting.rate / 8, burst=float(burst))


def compare(setting: Setting, network: Network, folder: Path, number: int) -> dict:
    idle, out = rest(), folder / f"run-{number}"
    emulate(setting, False, *setting.job, "--out", str(out))
    measured = Trace.read(out)
    found = Replay(measured, network, observe=True)
    parts, names = found.breakdown, ("network", "hosts", "ranks", "rate", "delay")
    share = (parts.transmission + parts.queueing + parts.latency) / found.seconds
    return {
        **dict(zip(names, setting, strict=False)),
        "run": number,
        "iterations": len(measured.solve),
        "measured": round(measured.seconds, 5),
        "predicted": round(found.loop_seconds, 5),
        "network_share": round(share, 4),
        "latency": round(network.links["lan"].latency, 7),
        "message_header": network.overhead.message,
        "cores": CORES,
        "idle": round(idle, 2),  # just before the run, of all cores
        "dadmm": dadmm.__version__,
    }


def rest(least: float = 0.6, patience: float = 600.0) -> float:
    """Wait until the cores are idle enough; return which part of a second they were.

    Where others keep them busy the emulated switch is late, and so are the ranks.
    """
    end = perf_counter() + patience
    while True:
        before = busy_seconds()
        sleep(1.0)
        idle = 1.0 - (busy_seconds() - before) / CORES
        if idle > least or perf_counter() > end:
            return idle


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for name in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == name]
        share, measured, predicted = (
            median(row[key] for row in own)
            for key in ("network_share", "measured", "predicted")
        )
        off = median(row["predicted"] / row["measured"] for row in own) - 1
        cells = f"{share:.0%}", f"{measured:.3f}", f"{predicted:.3f}", f"{off:+.1%}"
        yield [name, *cells]


def main() -> int:
    parser = parser_of(__doc__)
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--networks", nargs="+", choices=names, default=names)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "model.csv")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            for setting in SETTINGS:
                if setting.name in given.networks:
                    folder = Path(scratch, setting.name)
                    folder.mkdir()
                    rest()
                    network = limited(base(setting, folder), setting)
                    runs = range(given.runs)
                    rows += [compare(setting, network, folder, k) for k in runs]
                    say(f"{setting.name}: {given.runs} runs")
        except HostsError as error:
            if "cannot create network namespaces" not in str(error):
                raise
            print(f"skipped: {str(error).splitlines()[-1]}", file=sys.stderr)
            return 2
    print_markdown(HEAD, lines(rows))
    write_rows(rows, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
