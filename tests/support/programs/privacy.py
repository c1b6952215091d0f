"""What ranks send, searched for what they hold: one line of JSON per case.

Usage: privacy.py, on four ranks in a folder of its own; every rank has a file of its
own rows. A communicator records every byte that its process hands over to be sent, in
the place of MPI in all modules of `dadmm.comm`. Whatever is not on the lists below
raises: a new way of sending has to be added here first.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from dadmm import Topology, problems, run
from dadmm import sklearn as estimators
from dadmm.comm import mpi
from dadmm.comm.world import World
from tests.support.solving import solve

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
ITERATIONS = 8
PRECISION = 1e-11  # relative, to which a double that was sent is one that is held
QUIET = {
    "rank", "size", "Get_group", "Recv", "Recv_init", "Ibarrier", "Free", "Abort",
    "Improbe",
}  # fmt: skip
MAKING = {"Dup", "Split", "Split_type"}
SENDING = {  # and who gets what a rank puts in; None: the rank that is named
    **dict.fromkeys(("Iallreduce", "Iallgather", "Iallgatherv"), "everybody"),
    **dict.fromkeys(("Allreduce", "Scatter", "Bcast", "Ibcast"), "everybody"),
    **dict.fromkeys(("Ireduce", "Igather", "Igatherv"), "rank 0"),
    "Send": None, "Isend": None,
}  # fmt: skip
BY_ROOT = {"Scatter", "Bcast", "Ibcast"}
LIBRARY = {
    "Exception", "Request", "REQUEST_NULL", "IN_PLACE", "MAX", "MIN", "SUM",
    "COMM_TYPE_SHARED", "UNDEFINED", "Get_library_version", "Status", "BYTE",
}  # fmt: skip


class Sent(NamedTuple):
    """What was handed over, by which method, and who gets it."""

    method: str
    to: str
    data: bytes


class Request(MPI.Prequest):
    """A persistent send, which records what is in its buffer when it starts."""

    def record(self) -> None:
        self.comm.record("Send_init", self.to, self.buffer)

    def Start(self) -> None:
        self.record()
        super().Start()


class Comm:
    """A communicator whose process is overheard; it shares its tape with its copies."""

    def __init__(self, real: Any, tape: list[Sent]) -> None:
        self.real, self.tape = real, tape

    def __getattr__(self, name: str) -> Any:
        if name not in QUIET | MAKING | SENDING.keys():
            raise AttributeError(f"{name} of a communicator is not recorded")
        real = getattr(self.real, name)
        if name in MAKING:
            return lambda *args, **more: Comm(real(*args, **more), self.tape)

        def send(buffer: Any, *args: Any, **more: Any) -> Any:
            to = SENDING[name] or f"rank {more['dest'] if 'dest' in more else args[0]}"
            root = more.get("root", next((a for a in args if isinstance(a, int)), 0))
            if name not in BY_ROOT or self.real.rank == root:
                self.record(name, to, args[0] if buffer is MPI.IN_PLACE else buffer)
            return real(buffer, *args, **more)

        return real if name in QUIET else send

    def record(self, method: str, to: str, buffer: Any) -> None:
        array = buffer[0] if isinstance(buffer, list | tuple) else buffer
        self.tape.append(Sent(method, to, np.ascontiguousarray(array).tobytes()))

    def Idup(self) -> tuple["Comm", Any]:
        real, request = self.real.Idup()
        return Comm(real, self.tape), request

    def Send_init(self, buffer: Any, dest: int) -> Request:
        request = Request(self.real.Send_init(buffer, dest))
        request.comm, request.buffer, request.to = self, buffer, f"rank {dest}"
        return request


class Library:
    COMM_WORLD = Comm(MPI.COMM_WORLD, [])

    def __getattr__(self, name: str) -> Any:
        if name in LIBRARY:
            return getattr(MPI, name)
        raise AttributeError(f"MPI.{name} is not recorded")


def start_all(requests: list[Any]) -> None:
    for request in requests:
        if isinstance(request, Request):
            request.record()
    MPI.Prequest.Startall(requests)


def install() -> Comm:
    """Record from now on; return the communicator of all ranks, with its tape."""
    library = Library()
    for name, module in list(sys.modules.items()):
        if name.startswith("dadmm.comm.") and hasattr(module, "MPI"):
            module.MPI = library
    assert mpi.MPI is library
    mpi._start = start_all
    return library.COMM_WORLD


def rows(n: int, width: int, seed: int) -> list[np.ndarray]:
    """Return continuous rows of each rank, in columns of unlike unit and level."""
    rng = np.random.default_rng([seed, 77])
    mix = rng.standard_normal((width, width)) + 2.0 * np.eye(width)
    unit, level = rng.uniform(0.5, 3.0, width), rng.standard_normal(width)
    return [rng.standard_normal((n, width)) @ mix * unit + level for _ in range(SIZE)]


def cases(world: Comm) -> Iterator[tuple[str, list[np.ndarray], Callable[[], Any]]]:
    tall, wide, table = rows(9, 4, 1), rows(5, 8, 2), rows(10, 4, 3)
    holes = np.random.default_rng(4).random((SIZE, 9, 4)) < 0.1
    holed = [np.where(own, np.nan, x) for own, x in zip(holes, tall, strict=True)]
    signs = [np.column_stack([t[:, :-1], t[:, -1] > t[:, -1].mean()]) for t in table]
    inputs = [t[:, :-1] for t in table]
    for name, words, blocks in (
        ("ppca", "", tall),
        ("ppca gaps", "", holed),
        ("ppca without", "--no-summaries", tall),
        ("ppca wide", "", wide),
        ("ppca asked", "--compare-centralised", tall),
        ("ppca float32", "--payload float32", tall),
        ("ppca global", "--agreement global --record-edges", tall),
        ("least_squares without", "--no-summaries", table),
        ("logistic without", "--no-summaries", signs),
        *((name, "", table) for name in ("least_squares", "ridge", "lasso")),
        *((name, "", table) for name in ("elastic_net", "huber")),
        *((name, "", signs) for name in ("logistic", "poisson")),
        ("logistic plain", "--alpha 0", signs),
        ("multinomial", '--problem-settings {"n_classes":2}', signs),
    ):
        known = inputs if blocks is signs else blocks
        yield f"run {name}", known, partial(command, name, words, blocks[RANK])
    tracks = rows(6, 8, 5)
    lost = [x.copy() for x in tracks]
    for own in lost:
        own[2:4, 3] = np.nan
    for name, blocks, init, start in (
        ("sfm random", tracks, "shared", "random"),
        ("sfm lost tracks random", lost, "shared", "random"),
        ("sfm frame", tracks, "shared", "frame"),
        ("sfm merged", tracks, "merged", "frame"),
        ("sfm lost tracks merged", lost, "merged", "frame"),
    ):
        camera = problems.StructureFromMotion(blocks[RANK], start=start)
        settings = {"tolerance": 0.0, "max_iter": ITERATIONS, "init": init}
        graph = Topology.ring(SIZE)
        yield name, blocks, partial(solve, camera, graph, comm=world, **settings)
    for name in estimators.__all__:
        model = getattr(estimators, name)(comm=world, max_iter=ITERATIONS)
        counts = name in ("LogisticRegression", "PoissonRegressor")
        known, given = (inputs, signs) if counts else (table, table)
        yield f"sklearn {name}", known, partial(fit, model, given[RANK])
        if name == "PPCA":
            yield "sklearn PPCA gaps", holed, partial(fit, model, holed[RANK])
    yield "planted", tall, partial(leak, world, tall[RANK])


def command(name: str, words: str, own: np.ndarray) -> None:
    file = name.replace(" ", "-")
    np.save(f"{file}-{RANK}.npy", own)
    words += f" --problem {name.split()[0]} --data {file}-{{rank}}.npy --topology ring"
    words += f" --tolerance 0 --max-iter {ITERATIONS} --out run-{file}"
    words += " --n-components 2" * name.startswith("ppca")
    words += " --quiet" * (not name.endswith("asked"))
    assert run.main(words.split()) == 0


def fit(model: Any, own: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so few iterations are not enough
        supervised = not isinstance(model, estimators.PPCA)
        model.fit(*(own[:, :-1], own[:, -1]) if supervised else (own,))


def leak(world: Comm, own: np.ndarray) -> None:
    """Leak in four ways, each by one rank, and try other ways."""
    World(world).gather(own[:1] if RANK == 1 else np.empty((0, 4)))
    centred = (own - own.mean(axis=0))[3]
    half = world.Split(RANK % 2, key=RANK)
    half.Ibcast(centred.astype(np.float32), root=0).Wait()
    data, box = np.zeros(36, np.uint8), np.zeros(36, np.uint8)
    pair = world.Dup()
    requests = [pair.real.Recv_init(box, source=(RANK - 1) % SIZE)]
    requests += [pair.Send_init(data, (RANK + 1) % SIZE)]
    if RANK == 3:  # after the request was made, and not at a multiple of 8
        data[4:] = (own[5] / own.std(axis=0)).view(np.uint8)
    start_all(requests)
    MPI.Request.Waitall(requests)
    for other, name in ((pair, "Issend"), (world, "allgather"), (half, "Alltoall")):
        assert not hasattr(other, name), name


def entries(blocks: list[np.ndarray]) -> np.ndarray:
    """Return all that must not be sent.

    That is each entry, raw or less the mean of its column (of all nodes or of its
    own) or of its row, in units of the data or of the column's standard deviation (of
    all nodes or of its own).
    """
    whole = np.vstack(blocks)
    mean, scale, found = np.nanmean(whole, axis=0), np.nanstd(whole, axis=0), []
    for own in blocks:
        levels = (0.0, mean, np.nanmean(own, axis=0), np.nanmean(own, 1, keepdims=True))
        for measure in (1.0, scale, np.nanstd(own, axis=0)):
            found += [(own - level) / measure for level in levels]
    return absolute(found)


def summaries(blocks: list[np.ndarray]) -> np.ndarray:
    found = [np.empty(0)]
    for own in blocks:
        if not np.isnan(own).any():
            found += [own.mean(axis=0), own.sum(axis=0)]
            for each in (own, own - own.mean(axis=0)):
                found += [each.T @ each, np.linalg.qr(each, mode="r")]
    return absolute(found)


def absolute(found: list[np.ndarray]) -> np.ndarray:
    """Return the absolute values of all numbers that are not zero, sorted."""
    flat = np.abs(np.concatenate([each.ravel() for each in found]))
    return np.sort(flat[np.isfinite(flat) & (flat > 1e-9)])


def matches(tape: list[Sent], held: np.ndarray) -> list[str]:
    """Return where doubles that are held were sent: the method and to whom."""
    found: set[str] = set()
    for method, to, data in tape if len(held) else ():
        for start in (0, 4):
            sent = data[start : start + (len(data) - start) // 8 * 8]
            numbers = np.abs(np.frombuffer(sent, np.float64))
            numbers = numbers[np.isfinite(numbers) & (numbers != 1.0)]
            above = np.searchsorted(held, numbers)
            for near in (above - 1, above):
                other = held[np.clip(near, 0, len(held) - 1)]
                if (np.abs(numbers - other) <= PRECISION * other).any():
                    found.add(f"{method} to {to}")
    return sorted(found)


def single(tape: list[Sent], held: np.ndarray) -> int:
    """Return how many numbers that are held were sent in single precision."""
    words = [np.frombuffer(data[: len(data) // 4 * 4], np.uint32) for *_, data in tape]
    plain = np.concatenate([np.empty(0, np.uint32), *words]) & 0x7FFFFFFF
    return len(np.intersect1d(plain, held.astype(np.float32).view(np.uint32)))


if __name__ == "__main__":
    world = install()
    for name, blocks, job in cases(world):
        world.tape.clear()
        job()
        held = entries(blocks)
        first = [b[0] - np.nanmean(b[0]) + 0.1 for b in blocks]
        mine = {
            "bytes": sum(len(sent.data) for sent in world.tape),
            "entries": matches(world.tape, held),
            "single": single(world.tape, held),
            "summaries": matches(world.tape, summaries(blocks)),
            "shifted": matches(world.tape, absolute(first)),
        }
        everyone = MPI.COMM_WORLD.gather(mine)
        if RANK == 0:
            sys.__stdout__.write(json.dumps({"case": name, "ranks": everyone}) + "\n")
            sys.__stdout__.flush()
