"""A rank of a fault campaign: the real main job, late, slow, or with an hour to die.

Usage: rank.py [arguments of dadmm.run]. The variable DADMM_FAULTS_PLAN holds JSON, by
rank: ``late`` (seconds before anything starts), ``pace`` (seconds added to each
exchange), ``disk`` (seconds added to each fsync and rename), and ``die``: a call at
which this rank kills itself, ``{"at": "replace", "of": "node-", "count": 3}``.
"""

import json
import os
import runpy
import signal
import time
from collections.abc import Callable
from typing import Any

from dadmm.core.ranks import rank_and_size

VARIABLE = "DADMM_FAULTS_PLAN"


def wrap(name: str, before: Callable[..., Any], after: bool = False) -> None:
    """Call a function before (or after) each call of the exchange or of os."""
    owner: Any = os
    if name == "swap":
        from dadmm.comm.mpi import MPIExchange as owner
    real = getattr(owner, name)

    def called(*args: Any, **options: Any) -> Any:
        if not after:
            before(args)
        found = real(*args, **options)
        if after:
            before(args)
        return found

    setattr(owner, name, called)


def die_at(at: str, of: str = "", count: int = 1, after: bool = False) -> None:
    """Die at the call with this number among those whose arguments hold ``of``."""
    left = count

    def look(args: Any) -> None:
        nonlocal left
        if of in " ".join(map(str, args)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    wrap(at, look, after)


def prepare(late: float = 0, pace: float = 0, disk: float = 0, die: Any = None) -> None:
    """Make of this process the rank that the plan describes."""
    time.sleep(late)
    for name, seconds in {"swap": pace, "fsync": disk, "replace": disk}.items():
        if seconds:
            wrap(name, lambda args, seconds=seconds: time.sleep(seconds))
    if die is not None:
        die_at(**die)


if __name__ == "__main__":
    found = rank_and_size()
    assert found is not None, "rank.py runs under mpiexec"
    prepare(**json.loads(os.environ[VARIABLE]).get(str(found[0]), {}))
    runpy.run_module("dadmm.run", run_name="__main__", alter_sys=True)
