"""Run the main job and let something happen to one rank in its seventh iteration.

Usage: failing_rank.py RANK EVENT [arguments of dadmm.run], where EVENT is "raise",
"exit", "interrupt", "diverge", or the name of a signal, after which "+full" fills the
disk of the others when they write their results.
"""

import os
import signal
import sys
from itertools import count

import dadmm.run
from dadmm.core.errors import OutputError, ProblemError
from dadmm.core.ranks import rank_and_size
from dadmm.problems import PPCA
from dadmm.runs import folder


def befall(event: str) -> None:
    errors = {
        "raise": RuntimeError("this was to be expected"),
        "exit": SystemExit(0),
        "interrupt": KeyboardInterrupt(),
        "diverge": ProblemError("there is no minimum"),
    }
    if event in errors:
        raise errors[event]
    os.kill(os.getpid(), getattr(signal, event))


if __name__ == "__main__":
    rank, (event, *others) = int(sys.argv[1]), sys.argv[2].split("+")
    iterations, objectives = count(1), PPCA.objectives  # asked for once in each

    def objectives_until(self, *arguments):
        if next(iterations) == 7:
            befall(event)
        return objectives(self, *arguments)

    def write_arrays(path, arrays):
        raise OutputError(f"cannot write to {path.parent}: no space")

    if rank_and_size()[0] == rank:
        PPCA.objectives = objectives_until
    elif others == ["full"]:
        folder.write_arrays = write_arrays
    sys.exit(dadmm.run.main(sys.argv[3:]))
