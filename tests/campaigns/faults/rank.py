"""A rank of a fault campaign: the real main job, in which something goes wrong.

Usage: rank.py [arguments of dadmm.run]. The variable DADMM_FAULTS_PLAN holds JSON, by
rank: ``late`` (seconds before anything starts), ``pace`` (seconds added to each
exchange), ``disk`` (seconds added to each fsync and rename), ``die``: a call at which
this rank kills itself, ``{"at": "replace", "of": "node-", "count": 3}``, ``act``: what
a function does instead, ``{"at": "dadmm.cli.setup:problems", "what": "hang"}``,
``versions`` of packages, and ``words``, further arguments.
"""

import importlib
import json
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dadmm.core.ranks import rank_and_size

VARIABLE = "DADMM_FAULTS_PLAN"


def wrap(name: str, before: Callable[..., Any], after: bool = False) -> None:
    """Call a function before (or after) each call of another one.

    It is ``swap`` of the exchange, ``module:function``, ``module:Class.method``, or one
    of os.
    """
    if name == "swap":
        name = "dadmm.comm.mpi:MPIExchange.swap"
    module, _, path = name.rpartition(":")
    *classes, name = path.split(".")
    owner: Any = importlib.import_module(module or "os")
    for inner in classes:
        owner = getattr(owner, inner)
    real = getattr(owner, name)

    def called(*args: Any, **options: Any) -> Any:
        changed = None if after else before(args)
        found = real(*args, **options)
        if after:
            before(args)
        return found if changed is None else found * changed

    setattr(owner, name, called)


def at_call(at: str, then: Callable[[], Any], of: str, count: int, after: bool) -> None:
    """Do something at the call of this number among calls with ``of`` as argument."""
    left = count

    def look(args: Any) -> Any:
        nonlocal left
        if of in " ".join(map(str, args)) if of else True:
            left -= 1
            if left == 0:
                if place := os.environ.get("DADMM_FAULTS_STRUCK"):
                    Path(place).write_text(repr(time.time()))
                return then()
        return None

    wrap(at, look, after)


def run_out_of_memory() -> None:
    """Allocate until there is no memory, of which this rank may have no more."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 24), now + (1 << 24)))
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def hang() -> None:
    while True:
        time.sleep(1)


def spin() -> None:
    while True:
        pass


def throw(error: BaseException) -> None:
    raise error


def fill_with_nan() -> float:
    return float("nan")


ACTS: dict[str, Callable[[], Any]] = {
    "Exception": partial(throw, RuntimeError("injected")),
    "SystemExit": partial(throw, SystemExit("injected")),
    "KeyboardInterrupt": partial(throw, KeyboardInterrupt("injected")),
    "memory": run_out_of_memory,
    "nan": fill_with_nan,
    "exit": partial(os._exit, 0),
    "kill": partial(os.kill, os.getpid(), signal.SIGKILL),
    "stop": partial(os.kill, os.getpid(), signal.SIGSTOP),
    "hang": hang,
    "pause": partial(time.sleep, 4),
    "spin": spin,
}


def prepare(
    late: float = 0, pace: float = 0, disk: float = 0, die: Any = None, act: Any = None,
    versions: Any = None, words: Any = (),
) -> None:  # fmt: skip
    """Make of this process the rank that the plan describes."""
    time.sleep(late)
    for name, seconds in {"swap": pace, "fsync": disk, "replace": disk}.items():
        if seconds:
            wrap(name, lambda args, seconds=seconds: time.sleep(seconds))
    for found in filter(None, (die, act)):
        call = {"of": "", "count": 1, "after": False, "what": "kill"} | found
        at_call(then=ACTS[call.pop("what")], **call)
    for name, value in (versions or {}).items():
        module = "dadmm.core.version" if name == "dadmm" else name
        importlib.import_module(module).__version__ = value
    sys.argv += words


if __name__ == "__main__":
    found = rank_and_size()
    assert found is not None, "rank.py runs under mpiexec"
    prepare(**json.loads(os.environ[VARIABLE]).get(str(found[0]), {}))
    runpy.run_module("dadmm.run", run_name="__main__", alter_sys=True)
