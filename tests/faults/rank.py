"""A rank of a fault campaign: the real main job, late, slow, or with an hour to die.

Usage: rank.py [arguments of dadmm.run]. The variable DADMM_FAULTS_PLAN holds JSON, by
rank: ``late`` (seconds before anything starts), ``pace`` (seconds added to each
exchange), ``disk`` (seconds added to each fsync and rename), and ``die``: a call at
which this rank kills itself, ``{"at": "replace", "of": "node-", "count": 3}``.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import time
from typing import Any

from dadmm.exchange.launch_link import rank_and_size

VARIABLE = "DADMM_FAULTS_PLAN"


def wrap(owner: Any, name: str, before: Any, after: Any) -> None:
    """Let something happen before and after each call of a function."""
    real = getattr(owner, name)

    def called(*args: Any, **options: Any) -> Any:
        before(args)
        found = real(*args, **options)
        after(args)
        return found

    setattr(owner, name, called)


def owner_of(name: str) -> Any:
    """Return where a call lives: the exchange, or the operating system."""
    if name == "swap":
        from dadmm.exchange.mpi import MPIExchange

        return MPIExchange
    return os


def slow_down(name: str, seconds: float) -> None:
    """Let each call take longer."""
    wrap(owner_of(name), name, lambda args: time.sleep(seconds), lambda args: None)


def die_at(at: str, of: str = "", count: int = 1, after: bool = False) -> None:
    """Die at the call with this number among those whose arguments hold ``of``."""
    left = count

    def look(args: Any) -> None:
        nonlocal left
        if of in " ".join(map(str, args)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def nothing(args: Any) -> None:
        pass

    wrap(owner_of(at), at, *((nothing, look) if after else (look, nothing)))


def prepare(late: float = 0, pace: float = 0, disk: float = 0, die: Any = None) -> None:
    """Make of this process the rank that the plan describes."""
    time.sleep(late)
    if pace:
        slow_down("swap", pace)
    if disk:
        slow_down("fsync", disk)
        slow_down("replace", disk)
    if die is not None:
        die_at(**die)


if __name__ == "__main__":
    found = rank_and_size()
    assert found is not None, "rank.py runs under mpiexec"
    prepare(**json.loads(os.environ[VARIABLE]).get(str(found[0]), {}))
    runpy.run_module("dadmm.run", run_name="__main__", alter_sys=True)
