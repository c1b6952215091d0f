"""What ranks measure for `bench_exchange.py`: swaps of one graph by several transports.

A transport is a function that swaps one message with every neighbour. All of them send
the same rows of bytes from the same memory; they differ in the calls of MPI they use
and in how they wait for them.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from time import sleep
from typing import Any

import mpi4py
import numpy as np

from benchmarks.shared.commands import seconds_of
from dadmm.comm import wire
from dadmm.comm.mpi import (
    MPI,
    POLL_INTERVAL,
    MPIExchange,
    find_hosts,
    poll,
)
from dadmm.comm.world import World, wait_sleeping
from dadmm.graphs.topology import Topology

Swap = Callable[[], Any]
WAITS = ("block", "poll")
BLOCK = 30e-3  # seconds that a block of swaps should take
FEWEST, TRIAL, MOST = 3, 8, 1000  # swaps of a block


def circulant(n: int) -> Topology:
    """Return the graph of nodes that are at most three apart on a ring."""
    steps = [k for k in (1, 2, 3) if k < n]
    return Topology.from_edges(n, [(i, (i + k) % n) for i in range(n) for k in steps])


GRAPHS = {"ring": Topology.ring, "circulant": circulant, "complete": Topology.complete}


def measure(
    graphs: Sequence[str], sizes: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """Return, on every rank, a row for each transport, graph and number of bytes."""
    world = World(MPI.COMM_WORLD)
    comm = MPI.COMM_WORLD.Dup()
    hosts = world.gather_json(MPI.Get_processor_name())
    facts = {
        "mpi": world.library,
        "mpi4py": mpi4py.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
        "ranks": comm.size,
        "hosts": len(set(hosts)),
    }
    rows = []
    partners: dict[str, int] = {}  # the first rank that rank 0 reaches by such a link
    for rank, host in enumerate(hosts[1:], 1):
        partners.setdefault("host" if host == hosts[0] else "lan", rank)
    for kind, partner in partners.items():
        for size in sizes:
            times = ping_pong(comm, partner, size, rounds)
            row = {"transport": "ping-pong", "class": kind, "wait": "block"}
            rows.append(row | {"bytes": size, "seconds": float(np.median(times))})
    for name in graphs:
        topology = GRAPHS[name](comm.size)
        cell = {"graph": name, "degree": int(topology.degrees.max())}
        for size in sizes:
            rows += [cell | row for row in contest(comm, topology, size, rounds)]
    comm.Free()
    return [facts | row for row in rows]


def ping_pong(comm: Any, partner: int, size: int, rounds: int) -> list[float]:
    """Return the seconds of half a round trip between rank 0 and another, by round."""
    box, first = np.zeros(size, dtype=np.uint8), comm.rank == 0
    send, receive = comm.Send, comm.Recv

    def there_and_back() -> None:
        if first:
            send(box, partner)
            receive(box, partner)
        else:
            receive(box, 0)
            send(box, 0)

    times = []
    if comm.rank in (0, partner):
        seconds = seconds_of(there_and_back, FEWEST)
        bids = comm.sendrecv(seconds, partner if first else 0)
        count = amount(max(bids, seconds))
        times = [seconds_of(there_and_back, count) / 2 for _ in range(rounds)]
    wait_sleeping(comm.Ibarrier())  # the others are asleep meanwhile
    return comm.bcast(times)


def contest(
    comm: Any, topology: Topology, size: int, rounds: int
) -> list[dict[str, Any]]:
    """Return a row for each transport: its seconds per swap, and ours over them.

    The transports take turns, in blocks of swaps and in another order each round. A
    block lasts as long as for the rank it lasts longest.
    """
    _, crowded = find_hosts(comm)
    own = WAITS[crowded]  # what "auto" comes to
    gather = partial(poll, interval=POLL_INTERVAL if crowded else 0.0)
    with ExitStack() as stack:
        swaps = transports(comm, topology, size, own, stack)
        names = list(swaps)
        for swap in swaps.values():  # the first swaps connect, and plan
            seconds_of(swap, FEWEST)
        bids = np.array([seconds_of(swap, TRIAL) for swap in swaps.values()])
        comm.Allreduce(MPI.IN_PLACE, bids, op=MPI.MAX)
        alike = {w: np.median(bids[[own == w for _, own in names]]) for w in WAITS}
        counts = [amount(float(alike[wait])) for _, wait in names]
        times = np.empty((rounds, len(names)))
        shuffle = np.random.default_rng(0).permutation  # the same on all ranks
        for turn in range(rounds):
            for k in shuffle(len(names)):
                gather([comm.Ibarrier()])
                times[turn, k] = seconds_of(swaps[names[k]], counts[k])
        gather([comm.Ibarrier()])
        comm.Allreduce(MPI.IN_PLACE, times, op=MPI.MAX)
    over = np.median(times[:, [names.index(("dadmm", own))]] / times, axis=0)
    middle = np.median(times, axis=0)
    return [
        {"transport": name, "wait": wait, "bytes": size, "seconds": float(middle[k]),
         "dadmm_over": float(over[k]), "waits_alike": wait == own,
         "swaps": counts[k], "rounds": rounds}
        for k, (name, wait) in enumerate(names)
    ]  # fmt: skip


def amount(seconds: float) -> int:
    """Return how many swaps of so many seconds make a block."""
    return min(max(round(BLOCK / seconds), FEWEST), MOST)


def transports(
    comm: Any, topology: Topology, size: int, own: str, stack: ExitStack
) -> dict[tuple[str, str], Swap]:
    """Return all transports by name and wait; what they hold is freed by the stack."""
    found: dict[tuple[str, str], Swap] = {}
    numbers = (size - 2 * wire.ETA) // 8  # that fill the rows
    own_node = np.array([comm.rank])
    exchanges = {
        wait: MPIExchange(comm, topology, numbers, own_node, wait=wait)
        for wait in WAITS
    }
    for wait, exchange in exchanges.items():
        stack.callback(exchange.close)
        exchange.lengths[:] = size
        found["dadmm", wait] = exchange.swap
    near = topology.neighbours[comm.rank]
    out, box = exchanges[own].outbox.rows, exchanges[own].inbox.rows
    graph = comm.Create_dist_graph_adjacent(near, near)
    stack.callback(graph.Free)
    found["Neighbor_alltoall", "block"] = lambda: graph.Neighbor_alltoall(out, box)
    for wait in WAITS:
        done = waiter(wait, len(near))
        found["persistent", wait] = persistent(comm, near, out, box, done, stack)
        found["nonblocking", wait] = nonblocking(comm, near, out, box, done)
        found["Ineighbor_alltoallv", wait] = neighbourhood(graph, out, box, done)
    return found


def waiter(wait: str, degree: int) -> Callable[[list[Any]], Any]:
    """Return a way to wait: inside MPI, or by looks at all messages between sleeps."""
    if wait == "block":
        return MPI.Request.Waitall
    done = MPI.Request.Testall

    def poll(requests: list[Any]) -> None:
        while True:
            for _ in range(degree + 1):
                if done(requests):
                    return
            sleep(POLL_INTERVAL)

    return poll


def persistent(
    comm: Any, near: Sequence[int], out: Any, box: Any, done: Any, stack: ExitStack
) -> Swap:
    """Plan one request per message, once; start them all and wait."""
    requests = [comm.Recv_init(box[k], j) for k, j in enumerate(near)]
    requests += [comm.Send_init(out[k], j) for k, j in enumerate(near)]
    for request in requests:
        stack.callback(request.Free)
    start = MPI.Prequest.Startall
    return lambda: (start(requests), done(requests))


def nonblocking(comm: Any, near: Sequence[int], out: Any, box: Any, done: Any) -> Swap:
    """Make the requests anew in every swap."""
    send, receive = comm.Isend, comm.Irecv
    letters = list(zip(out, near, strict=True))
    boxes = list(zip(box, near, strict=True))
    return lambda: done([*(receive(*b) for b in boxes), *(send(*o) for o in letters)])


def neighbourhood(graph: Any, out: Any, box: Any, done: Any) -> Swap:
    """Leave it to a collective over the graph, whose messages may differ in length."""
    degree, size = out.shape
    counts, starts = [size] * degree, [size * k for k in range(degree)]
    letters, boxes = [out, counts, starts, MPI.BYTE], [box, counts, starts, MPI.BYTE]
    start = graph.Ineighbor_alltoallv
    return lambda: done([start(letters, boxes)])
