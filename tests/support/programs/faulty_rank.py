"""The real main job, in which something goes wrong on some ranks.

Usage: faulty_rank.py [arguments of dadmm.run]. The variable DADMM_FAULTS_PLAN holds
JSON, by rank: ``late`` (seconds before anything starts), ``pace`` (seconds added to
each exchange), ``disk`` (seconds added to each fsync and rename), ``act``: what this
rank does at a call, ``{"what": "hang", "at": "replace", "of": "node-", "count": 3}``,
``versions`` of packages, and ``words``, further arguments.
"""

import errno
import importlib
import json
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

from dadmm.core.errors import ProblemError
from dadmm.core.ranks import rank_and_size

SWAP = "dadmm.comm.mpi:MPIExchange.swap"


def find(name: str) -> tuple[Any, str]:
    """Return the owner and the name of ``module:Class.method``, or of one of os."""
    module, _, path = name.rpartition(":")
    *classes, last = path.split(".")
    return reduce(getattr, classes, importlib.import_module(module or "os")), last


def wrap(name: str, extra: Callable[..., Any], after: bool = False) -> None:
    """Call a function before or after each call of another one."""
    owner, last = find(name)
    real = getattr(owner, last)

    def called(*args: Any, **options: Any) -> Any:
        factor = None if after else extra(args)
        found = real(*args, **options)
        if after:
            extra(args)
        return found if factor is None else found * factor

    setattr(owner, last, called)


def act(what: str, at: str, of: str = "", count: int = 1, after: bool = False) -> None:
    """Do something at the call of this number among calls with ``of`` as argument."""
    left = count

    def look(args: Any) -> Any:
        nonlocal left
        left -= of in " ".join(map(str, args)) if of else 1
        if left:
            return None
        left = -1
        if place := os.environ.get("DADMM_FAULTS_STRUCK"):
            Path(place).write_text(repr(time.time()))
        return ACTS[what]()

    wrap(at, look, after)


def run_out_of_memory() -> None:
    """Allocate until there is no memory, of which this rank may have no more."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 24), now + (1 << 24)))
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def spin() -> None:
    while True:
        pass


def throw(kind: type[BaseException], *code: int) -> None:
    raise kind(*code, "injected")


def renumber() -> None:
    """Let a ring have its nodes in another order."""
    from dadmm.graphs import topology

    topology.GRAPHS["ring"] = lambda n, seed: topology.Topology.from_edges(
        n, [(2 * i % n, (2 * i + 2) % n) for i in range(n)]
    )


ACTS: dict[str, Callable[[], Any]] = {
    "Exception": partial(throw, RuntimeError),
    "SystemExit": partial(throw, SystemExit),
    "KeyboardInterrupt": partial(throw, KeyboardInterrupt),
    "ProblemError": partial(throw, ProblemError),
    "full disk": partial(throw, OSError, errno.ENOSPC),
    "memory": run_out_of_memory,
    "nan": lambda: float("nan"),
    "exit": partial(os._exit, 0),
    "SIGKILL": partial(os.kill, os.getpid(), signal.SIGKILL),
    "SIGSTOP": partial(os.kill, os.getpid(), signal.SIGSTOP),
    "SIGTERM": partial(os.kill, os.getpid(), signal.SIGTERM),
    "hang": partial(time.sleep, 10**6),
    "pause": partial(time.sleep, 4),
    "spin": spin,
    "renumber": renumber,
}


def main(plan: dict[str, Any]) -> None:
    """Be the rank that the plan describes."""
    time.sleep(plan.get("late", 0))
    for name, kind in {SWAP: "pace", "fsync": "disk", "replace": "disk"}.items():
        if kind in plan:
            wrap(name, lambda args, kind=kind: time.sleep(plan[kind]))
    if "act" in plan:
        act(**plan["act"])
    for name, value in plan.get("versions", {}).items():
        importlib.import_module(name).__version__ = value
    sys.argv += plan.get("words", [])
    runpy.run_module("dadmm.run", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    rank, _ = rank_and_size() or (0, 1)
    main(json.loads(os.environ["DADMM_FAULTS_PLAN"]).get(str(rank), {}))
