"""The command ``dadmm``, which is the same as ``python -m dadmm``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from dadmm.core.arguments import BAD_INPUT, print_out, program, report_error
from dadmm.core.errors import DadmmError, closest
from dadmm.core.ranks import rank_and_size
from dadmm.core.version import __version__

# by name: a module with a function main(argv), what it does, and an example
COMMANDS = {
    "run": ("cli.job", "fit a model over a network", "--nodes 20"),
    "compare": ("cli.compare", "compare methods by bytes", "--method snap"),
    "sweep": ("cli.sweep", "run a grid of settings", "grid.toml --out runs/grid"),
    "predict": ("cli.predict", "predict new rows by a model", "RUN a.csv --out b.csv"),
    "plot": ("show.plot", "draw a run, or compare runs", "RUN"),
    "report": ("show.report", "write a run as one HTML page", "RUN"),
    "replay": ("timing.replay", "predict the time on a network", "RUN --network wan"),
    "waiting": ("timing.waiting", "show who waited for whom", "RUN"),
    "calibrate": (
        "timing.calibrate", "fit a network to measurements", "a.csv --out b.toml"
    ),
}  # fmt: skip
# all ranks of these raise together; of anything else, the first rank does all
FOR_RANKS = ("run", "compare")
INTERRUPTED = 130  # exit code after SIGINT, as of a shell


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names, and return its exit code."""
    name, *words = (sys.argv[1:] if argv is None else list(argv)) or [""]
    rank, _ = rank_and_size() or (0, 1)
    if rank and name not in FOR_RANKS:
        return 0
    if name in COMMANDS:
        try:
            command = main_of(name)
        except KeyboardInterrupt:  # while modules are imported
            return INTERRUPTED
        gc.freeze()  # no search for garbage among modules
        code = command(words)
        gc.freeze()  # nor at exit, where it takes an eighth of the time of a short run
        return code
    if name in ("", "--version", "-h", "--help", "help"):
        print_out(f"dadmm {__version__}\n" if name == "--version" else usage())
        return 0 if name else BAD_INPUT
    if name.startswith("-"):
        wrong = f"name a command before {name}, such as {program()} run {name} ..."
    else:
        hint = closest(name, COMMANDS, f"choose one of {', '.join(COMMANDS)}")
        wrong = f"unknown command {name!r}; {hint}"
    return report_error(wrong)


def main_of(name: str) -> Callable[..., int]:
    """Return the function ``main(argv)`` of a command."""
    command: Callable[..., int] = import_module(f"dadmm.{COMMANDS[name][0]}").main

    def reporting(argv: Sequence[str] | None = None) -> int:
        try:
            return command(argv)
        except DadmmError as error:
            return report_error(error)
        except MemoryError:
            return report_error("there is not enough memory; use fewer rows or runs")
        except KeyboardInterrupt:
            return INTERRUPTED

    return command if name in FOR_RANKS else reporting


def usage() -> str:
    """Return the commands, with a line each."""
    start = program()
    rows = [
        f"  {name:<9}  {what:<29}  {start} {name} {example}\n"
        for name, (_, what, example) in COMMANDS.items()
    ]
    return (
        f"usage: {start} COMMAND [arguments]\n\n"
        "Decentralised consensus optimisation over MPI.\n\n"
        f"commands, with an example each:\n{''.join(rows)}\n"
        f"with an MPI rank per node: mpiexec -n 20 {start} run\n"
        f"arguments of a command:    {start} COMMAND --help\n"
        f"version:                   {start} --version\n"
    )


if __name__ == "__main__":
    sys.exit(main())
