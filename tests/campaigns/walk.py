"""Count the functions of dadmm that rank 0 calls before, in and after the loop.

    mpiexec -n 4 python -m tests.campaigns.walk [--list] [arguments of dadmm run]

Without arguments: NAP in raw coordinates on a file of samples. With --list the
functions that are called before iteration 1 are printed, file by file.
"""

import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import numpy as np

import dadmm
import dadmm.run

HOME = str(Path(dadmm.__file__).parent)
LOOP = os.path.join(HOME, "admm", "loop.py"), "iterate"
USUAL = "--data x.npz --scheme nap --coordinates raw --init shared --max-iter 20"
OPTIMISED = 2  # the flag of a function's code, which a class body does not have


class Walk:
    """A profiler that notes each function of dadmm in the phase that calls it."""

    def __init__(self) -> None:
        self.phase, self.room = "before", ""
        self.seen = {phase: Counter() for phase in ("before", "loop", "after")}
        self.changes = Counter()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        code: CodeType = frame.f_code
        if (code.co_filename, code.co_qualname) == LOOP:
            self.phase = "loop" if event == "call" else "after"
        own = code.co_filename.startswith(HOME) and code.co_flags & OPTIMISED
        if event == "call" and own and not code.co_name.startswith("<"):
            place = os.path.relpath(code.co_filename, HOME)
            self.seen[self.phase][place, code.co_qualname] += 1
            self.changes[self.phase] += self.room != os.path.dirname(place)
            self.room = os.path.dirname(place)

    def show(self, is_listed: bool) -> None:
        for phase, found in self.seen.items():
            n_files, changes = len({place for place, _ in found}), self.changes[phase]
            print(
                f"{phase}: {len(found)} functions in {n_files} files, "
                f"{changes} changes of room"
            )
        for (place, name), n in sorted(self.seen["before"].items()) * is_listed:
            print(f"{place:24} {name} ({n})")


def main() -> int:
    words, walk = [word for word in sys.argv[1:] if word != "--list"], Walk()
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as own:
        folder = comm.bcast(own)
        os.chdir(folder)
        if comm.rank == 0:
            np.savez("x.npz", x=dadmm.datasets.synthetic()[0])
            sys.setprofile(walk.note)
        comm.Barrier()
        words = [*(words or USUAL.split()), "--quiet", "--out", "run"]
        code = dadmm.run.main(words)
        sys.setprofile(None)
        comm.Barrier()
    if comm.rank == 0:
        walk.show("--list" in sys.argv)
    return code


if __name__ == "__main__":
    sys.exit(main())
