"""One job on one rank: read, set up, solve, write, report."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic
from typing import Any

from dadmm.admm.loop import Callback
from dadmm.cli import arrays, report, run_directory, setup, summary, targets
from dadmm.cli.config import PER_RANK, CommandLine, RunConfig
from dadmm.cli.progress import FailureMessages, ProgressLine, Signals
from dadmm.core.arguments import BAD_INPUT, print_out, report_error
from dadmm.core.errors import DadmmError
from dadmm.core.interfaces import World
from dadmm.core.layout import Matrix
from dadmm.data.textfiles import Names
from dadmm.exchange import identity
from dadmm.exchange.world import collectively
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.solver.result import Result
from dadmm.solver.solve import solve

OK, NOT_CONVERGED = 0, 3  # exit codes


def run(world: World, argv: Sequence[str], signals: Signals) -> int:
    """Run the job on this rank, and return the exit code, the same on all ranks."""
    started = monotonic()
    config, dry_run, resume = read(world, argv)
    if dry_run:
        from dadmm.cli.privacy import leaving  # only a dry run needs it

        print_out(config.to_toml() + leaving(config))
        return OK
    if config.on_failure == "continue":
        collectively(world, world.check_fault_tolerance)
    graph, schedule = setup.graph(world, config)
    world.compare({"graph": identity.of_graph(graph, schedule)})
    hosts = setup.place(world, config, graph)  # from here on, rank i has node i
    data = setup.shards(world, config, graph.n_nodes)
    samples, truth = data.samples, data.truth
    problems = collectively(world, setup.problems, config, samples, graph.n_nodes)
    notice = report.notice_of_gathering(world, config)
    if notice is not None and not config.quiet:
        print_out(f"{notice}\n")
    features = collectively(world, setup.features, config, data, problems)
    known = targets.gather(world, config, list(problems.values()), truth)
    directory = run_directory.begin(
        world, config, resume, graph, schedule, samples, known.observe
    )
    try:
        result = solve_watched(
            world, config, graph, schedule, problems, directory, signals
        )
        if result.lost:
            world.adopt(result.comm)
            if world.rank == 0:  # the lowest rank that is left prints from now on
                sys.stdout = sys.__stdout__
            hosts = [hosts[i] for i in result.nodes]
            known = targets.gather(world, config, list(problems.values()), truth)
        write_results(
            world, config, problems, samples, features, known, directory, result, hosts,
            started,
        )  # fmt: skip
    finally:
        directory.lock.release()
    return NOT_CONVERGED if config.strict and not result.converged else OK


def write_results(
    world: World,
    config: RunConfig,
    problems: dict[int, Any],
    samples: dict[int, Matrix],
    features: Names,
    known: targets.Targets,
    directory: run_directory.RunDirectory,
    result: Result,
    hosts: Sequence[str],
    started: float,
) -> None:
    """Write the results, and print the report."""
    collectively(world, directory.parts.close)
    elapsed, start = monotonic() - started, directory.checkpoints.start
    numbers = summary.build(
        world, config, result, known, samples.values(), hosts, elapsed, start, features
    )
    content = collectively(
        world, arrays.build, world, problems, result, features, known.adrift
    )
    if known.gaps:
        collectively(
            world, arrays.write_imputed, directory.parts.home, problems, samples, result
        )
    calls, data = world.sent()
    numbers |= {"outside_calls": calls, "outside_bytes": data}
    folder = collectively(
        world, run_directory.finish, world, directory, result, numbers, content
    )
    collectively(world, directory.checkpoints.close)  # last: results are written
    if world.rank == 0 and not config.quiet:
        print_out(f"{report.text(config, numbers, folder)}\n")


def read(world: World, argv: Sequence[str]) -> CommandLine:
    """Return the command line, after checking that all ranks have the same.

    Each rank reads its own command line and files.
    """
    printed: SystemExit | None = None  # by --help or --version

    def parse() -> CommandLine | None:
        nonlocal printed
        try:
            return RunConfig.from_argv(argv)
        except SystemExit as leaving:
            printed = leaving
            return None

    found = collectively(world, parse)
    given: dict[str, Any] = {"--help or --version": printed is not None}
    if found is not None:
        settings = asdict(found.config).items()
        given |= {name: value for name, value in settings if name not in PER_RANK}
        given |= {"--dry-run": found.dry_run, "--resume": str(found.resume)}
    world.compare(identity.versions() | identity.settings(given))
    if found is None:
        raise printed or SystemExit
    return found


def solve_watched(
    world: World,
    config: RunConfig,
    graph: Topology,
    schedule: Schedule | None,
    problems: dict[int, Any],
    directory: run_directory.RunDirectory,
    signals: Signals,
) -> Result:
    """Run the algorithm, with records, a progress line, and stops by signals."""
    line = ProgressLine(config.max_iter)
    callbacks: list[Callback] = [directory.parts, signals]
    callbacks.append(FailureMessages(world.rank))
    if world.rank == 0 and not config.quiet:
        callbacks.append(line)
    try:
        return solve(
            list(problems.values()) if world.comm is None else problems[world.rank],
            graph,
            comm=world.comm,
            schedule=schedule,
            record=False,
            callbacks=callbacks,
            checkpoints=directory.checkpoints,
            **config.solver_settings(),
        )
    except DadmmError as error:
        if world.comm is None:
            raise
        # only this rank has the error, and the others wait for its messages
        report_error(f"rank {world.rank}: {error}")
        world.end(BAD_INPUT)
        os._exit(BAD_INPUT)
    finally:
        line.close()
