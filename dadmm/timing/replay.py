"""Predict a run on another network: ``python -m dadmm.replay RUN --network wan``.

Computing times and message sizes are those of the recorded run; `playback` simulates
the messages. Before a node posts the messages of iteration t, it does the update of
t - 1 and the solve of t, times its straggler factor. Callbacks are left out. Exit
codes: 0 success, 2 invalid input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.arguments import Parser, program, report_error
from dadmm.core.errors import DadmmError
from dadmm.core.layout import Matrix, Vector
from dadmm.timing.network import CLASSES, Network, Wires
from dadmm.timing.playback import Played, play
from dadmm.timing.trace import Trace, write


class Breakdown(NamedTuple):
    """Seconds of the critical path by cause. Their sum is the time of the run.

    The critical path is traced from the last exchange to the first: from the end of an
    exchange to the post of the message that arrived (or was confirmed) last, and from
    there to the end of the sender's previous exchange.
    """

    compute: float  # mean over the nodes
    stragglers: float  # computing time on the path beyond the mean
    transmission: float  # bytes on the wire
    queueing: float  # waiting for an interface or link
    latency: float


@dataclass(frozen=True)
class Replay:
    """A recorded run on a modelled network.

    Row 0 of the arrays is the exchange before iteration 1.
    """

    trace: Trace
    network: Network
    wires: Wires
    work: Matrix  # (iterations + 2, n_nodes) before each post, and after the last
    played: Played

    @property
    def posts(self) -> Matrix:
        """When nodes post their messages, (iterations + 1, n_nodes)."""
        return self.played.posts

    @property
    def ends(self) -> Matrix:
        """When nodes end their exchanges, (iterations + 1, n_nodes)."""
        return self.played.ends

    @property
    def seconds(self) -> float:
        """Time of the run, with the first exchange."""
        return float((self.ends[-1] + self.work[-1]).max())

    @property
    def loop_seconds(self) -> float:
        """Time of the iterations, on the slowest node."""
        return float((self.ends[-1] + self.work[-1] - self.ends[0]).max())

    @property
    def bytes(self) -> int:
        """Payload of all messages."""
        return int(self.trace.bytes.sum() + self.trace.prime.sum())

    @property
    def wire_bytes(self) -> int:
        """Bytes that leave the hosts, with headers."""
        sizes = np.concatenate([self.trace.prime[None], self.trace.bytes])
        sizes = sizes[:, self.wires.leaves]
        overhead = self.network.overhead
        confirmed = np.count_nonzero(sizes > self.network.confirm_above)
        replies = confirmed * (overhead.confirmation + overhead.packet)
        return int(overhead.wire(sizes).sum() + replies)

    @cached_property
    def path(self) -> tuple[Breakdown, Vector]:
        """The critical path by cause, and its network seconds by edge, (E,)."""
        by_edge = np.zeros((3, len(self.trace.edges)))
        i = int((self.ends[-1] + self.work[-1]).argmax())
        work = float(self.work[-1, i])
        for t in range(len(self.ends) - 1, -1, -1):
            e = self.played.edge[t, i]
            if e >= 0:
                by_edge[:, e] += self.played.parts[t, i]
                i = self.played.origin[t, i]
            work += float(self.work[t, i])
        compute = min(float(self.work.mean(axis=1).sum()), work)
        network = by_edge.sum(axis=1).tolist()
        return Breakdown(compute, work - compute, *network), by_edge.sum(axis=0)

    @property
    def breakdown(self) -> Breakdown:
        """Seconds of the critical path by cause."""
        return self.path[0]

    @property
    def slowest(self) -> tuple[int, int] | None:
        """The edge with most network time on the critical path, or None."""
        by_edge = self.path[1]
        if not by_edge.any():
            return None
        i, j = self.trace.edges[by_edge.argmax()].tolist()
        return i, j


def replay(trace: Trace, network: Network, observe: bool = False) -> Replay:
    """Predict a recorded run on a network; with ``observe``, callbacks are work too."""
    wires = network.wires(trace.edges, trace.n_nodes, trace.hosts)
    factors = network.stragglers.factors(len(trace.solve), trace.n_nodes)
    first = np.zeros((1, trace.n_nodes))
    work = trace.compute(observe) * factors
    after = trace.update[-1:] * factors[-1:]
    played = play(trace, network, wires, np.concatenate([first, work]))
    return Replay(trace, network, wires, np.concatenate([first, work, after]), played)


def table(replays: Sequence[Replay]) -> str:
    """Return a table with a row per network."""
    head = ("network", "seconds", *Breakdown._fields, "bytes on wire", "slowest link")
    rows = [head, *(_row(found) for found in replays)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells, link in rows:
        middle = [c.rjust(w) for c, w in zip(cells, widths[1:-1], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *middle, link]))
    return "\n".join(lines)


def _row(found: Replay) -> tuple[str, ...]:
    seconds = (found.seconds, *found.breakdown)
    numbers = [f"{x:.4g}" if x > 1e-9 else "0" for x in seconds]  # else rounding
    link, by_edge = "none", found.path[1]
    if found.slowest is not None:
        (i, j), e = found.slowest, by_edge.argmax()
        share = by_edge[e] / max(found.seconds, 1e-300)
        link = f"{i} to {j} ({CLASSES[found.wires.kind[e]]}), {100 * share:.0f} %"
    return found.network.name, *numbers, f"{found.wire_bytes:,}", link


def as_dict(found: Replay) -> dict[str, Any]:
    """Return the numbers of a prediction, for JSON."""
    return {
        "network": found.network.name,
        "seconds": found.seconds,
        "loop_seconds": found.loop_seconds,
        **found.breakdown._asdict(),
        "bytes": found.bytes,
        "wire_bytes": found.wire_bytes,
        "slowest_link": found.slowest,
        "iterations": len(found.trace.solve),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the predicted time of a run on each network; return the exit code."""
    parser = Parser(
        prog=program("replay"),
        description="Predict the time of a recorded run on other networks.",
    )
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--network", action="append", required=True, metavar="NAME",
        help="a preset (host, lan, wan, wireless) or a TOML file; may be repeated",
    )  # fmt: skip
    parser.add_argument("--out", metavar="FILE", help="write the numbers as JSON")
    try:
        given = parser.parse_args(argv)
        networks = [Network.read(name) for name in given.network]
        trace = Trace.read(given.run)
        found = [replay(trace, network) for network in networks]
        if given.out:
            rows = [as_dict(item) for item in found]
            write(given.out, json.dumps(rows, indent=2) + "\n")
    except DadmmError as error:
        return report_error(error)
    if trace.collectives:
        print(
            f"dadmm: warning: {trace.collectives} collectives of this run are not "
            "modelled; use a run with --agreement neighbours",
            file=sys.stderr,
        )
    print(
        f"{trace.n_nodes} nodes, {len(trace.edges)} directed edges, "
        f"{len(trace.solve)} iterations, {found[0].bytes:,} bytes; recorded in "
        f"{trace.seconds:.4g} s"
    )
    print(table(found))
    return 0
