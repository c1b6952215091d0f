"""The command ``dadmm``: ``dadmm run``, ``dadmm plot`` and others.

``python -m dadmm`` is the same, and ``python -m dadmm.run`` is ``dadmm run``. Exit
code 2: the name of a command is missing or wrong.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module

from dadmm.comm.launch_link import rank_and_size
from dadmm.comm.world import collectively, connect
from dadmm.core.arguments import BAD_INPUT, print_out, program, report_error
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.version import __version__

# modules of this package with a function main(argv): what they do, and an example
COMMANDS = {
    "run": ("fit a model over a network", "run --nodes 20"),
    "predict": ("predict new rows by a model", "predict RUN a.csv --out b.csv"),
    "plot": ("draw a run, or compare runs", "plot RUN"),
    "report": ("write a run as one HTML page", "report RUN"),
    "replay": ("predict the time on a network", "replay RUN --network wan"),
    "waiting": ("show who waited for whom", "waiting RUN"),
    "calibrate": ("fit a network to measurements", "calibrate a.csv --out b.toml"),
}
FOR_RANKS = "run"  # of the others, the first rank of mpiexec does all
HELP = ("-h", "--help", "help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit code."""
    name, *words = (sys.argv[1:] if argv is None else list(argv)) or [""]
    rank, _ = rank_and_size() or (0, 1)
    if name in COMMANDS:
        if rank and name != FOR_RANKS:
            return 0
        command = import_module(f"dadmm.{name}")
        gc.freeze()  # no search for garbage among modules
        code: int = command.main(words)
        gc.freeze()  # nor at exit, where it takes an eighth of the time of a short run
        return code
    if name in ("", "--version", *HELP):
        if not rank:
            print_out(f"dadmm {__version__}\n" if name == "--version" else usage())
        return 0 if name else BAD_INPUT
    return _refuse(name)


def usage() -> str:
    """Return the commands, with a line each."""
    start = program()
    rows = [
        f"  {name:<9}  {what:<29}  {start} {example}\n"
        for name, (what, example) in COMMANDS.items()
    ]
    return (
        f"usage: {start} COMMAND [arguments]\n\n"
        "Decentralised consensus optimisation over MPI.\n\n"
        f"commands, with an example each:\n{''.join(rows)}\n"
        f"with an MPI rank per node: mpiexec -n 20 {start} run\n"
        f"arguments of a command:    {start} COMMAND --help\n"
        f"version:                   {start} --version\n"
    )


def _refuse(name: str) -> int:
    """Report a wrong name once, on rank 0 if there are ranks; return the exit code."""
    if name.startswith("-"):
        wrong = f"name a command before {name}, such as {program()} run {name} ..."
    else:
        from difflib import get_close_matches

        close = get_close_matches(name, COMMANDS, 1)
        known = f"choose one of {', '.join(COMMANDS)}"
        hint = f"did you mean {close[0]}?" if close else known
        wrong = f"unknown command {name!r}; {hint}"

    def refuse() -> None:
        raise ConfigError(wrong)

    world = None
    try:
        world = connect()
        collectively(world, refuse)  # so that no rank ends before the first one prints
    except DadmmError as error:
        if world is None or world.rank == 0:
            report_error(error)
    return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
