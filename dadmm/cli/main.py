"""Start the main job, and end it on every rank.

Exit codes: 0 if the run ended and its results are written, whatever its status; 1 if a
rank raised an error; 2 for invalid input, or output that cannot be written; 3 if the
status is "not converged" and ``--strict`` is set.
Other codes are those of a process that a signal ended (130 after a second Ctrl-C), or
mpiexec's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

from dadmm.admm.loop import Callback
from dadmm.cli import run_directory, setup, targets
from dadmm.cli.config import PER_RANK, CommandLine, RunConfig
from dadmm.cli.progress import FailureMessages, ProgressLine, Signals
from dadmm.cli.tables import Shards
from dadmm.core.arguments import BAD_INPUT, print_out, report_error
from dadmm.core.errors import DadmmError
from dadmm.core.interfaces import World
from dadmm.core.threads import one_blas_thread
from dadmm.data.files import Names
from dadmm.exchange import identity
from dadmm.exchange.launch_link import connect_to_launcher, wait_until_read
from dadmm.exchange.world import Checks, collectively, connect, host
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.solver.plan import Kind
from dadmm.solver.result import Result
from dadmm.solver.solve import solve

OK, FAILED, NOT_CONVERGED = 0, 1, 3  # exit codes
TIME_TO_REPORT = 2.0  # seconds in which one rank reports that others failed
GATHERS = (
    "compare_centralised: rank 0 gathers each node's number of rows, column means and "
    "scatter factor; if a node has no more rows than columns, these are as informative "
    "as its rows\n"
)
FEW_ROWS = (
    "{} of {} nodes have no more rows than {}; the summary that such a node "
    "sends to its parent in a tree, {}, is as good as its rows "
    "(docs/privacy.md); --no-summaries sends none\n"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return its exit code."""
    world, signals, code = None, Signals(), FAILED
    connect_to_launcher()
    try:
        world = connect()
        if world.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (only rank 0 prints)
        with one_blas_thread():
            code = run(world, sys.argv[1:] if argv is None else argv, signals)
    except DadmmError as error:
        code = BAD_INPUT
        if world is None or world.rank == 0:
            report_error(error)
    except Exception as error:
        if world is None or world.comm is None:
            raise
        _end_all_ranks(world, error)
    finally:
        print_out()  # flushes what --help and --version print
        signals.close(ranked=world is not None and world.comm is not None)
    if world is not None and world.shrunk:
        world.leave(code)
    return code


def _end_all_ranks(world: World, error: Exception) -> NoReturn:
    """End the job after an unexpected error on this rank."""
    failed = world.dead(error)
    if failed:  # before the first iteration or after the last: the run cannot continue
        if world.rank == min(set(range(world.size)) - set(failed)):
            names = ", ".join(map(str, failed))
            report_error(
                f"rank {names} failed outside the iterations, during set-up or while "
                "results were written; use --resume, or start a new run if there is "
                "no checkpoint"
            )
            wait_until_read(sys.stderr)
        else:
            sleep(TIME_TO_REPORT)  # mpiexec kills all ranks when this one ends
        os._exit(FAILED)  # the other ranks notice; an Abort may wait for failed ranks
    world.abort(error)  # ends all ranks, so that none waits for this one
    os._exit(FAILED)  # MPICH's Abort may return


def run(world: World, argv: Sequence[str], signals: Signals) -> int:
    """Run the job on this rank, and return the exit code, the same on all ranks."""
    started = monotonic()
    checks = Checks(world)
    given = checks.run(lambda: read(argv))
    checks.compare(lambda: settings_of(given))
    built = None
    if isinstance(given, CommandLine) and not given.dry_run:
        config, resume = given.config, given.resume
        if config.on_failure == "continue":
            checks.run(world.check_fault_tolerance)
        built = checks.run(lambda: setup.build_graph(world, config))
        checks.compare(lambda: setup.graph_facts(config, built))
    hosts = [own["host"] for own in checks.gather(host=host())]
    if isinstance(given, SystemExit):
        raise given
    if given.dry_run:
        given.config.settle(_n_nodes(world, given.config))
        from dadmm.cli.privacy import leaving  # only a dry run needs it

        wanted = given.config
        text = collectively(world, lambda: "" if world.rank else leaving(wanted))
        print_out(given.config.to_toml() + text)
        return OK
    graph, schedule = setup.share_graph(world, config, built)
    config.settle(graph.n_nodes)
    hosts = setup.place(world, config, graph, hosts)  # from here on, rank i has node i
    checks = Checks(world)
    data = setup.shards(world, config, graph, checks)
    problems = checks.run(lambda: setup.problems(config, data, graph.n_nodes))
    features = checks.run(lambda: setup.features(config, data, problems))
    about = checks.run(lambda: targets.describe(list(problems.values())))
    of_user = config.data is not None and world.comm is not None
    few = checks.run(lambda: setup.few_rows(config, data.samples, problems))
    process = [world.number, host(), os.getpid()]
    said: dict[str, Any] = {"few": few} if few and of_user else {}
    if data is not None and data.gaps:
        said["gaps"] = [[i, *counts] for i, counts in data.gaps.items()]
    everyone = checks.gather(about=about, process=process, **said)
    gaps = [row for own in everyone for row in own.get("gaps", [])]
    n_few = sum(own.get("few", 0) for own in everyone)
    if n_few and not config.quiet:
        what, when = "parameters", "in set-up and at checks"
        kind = config.plan(problems.values()).kind
        if kind is not Kind.METRIC:
            what = "the principal axes that are merged"
            when = "in set-up and at the end" if kind is Kind.MERGED else "at the end"
        print_out(FEW_ROWS.format(n_few, graph.n_nodes, what, when))
    if of_user and config.has_subspace and config.compares and not config.quiet:
        print_out(GATHERS)
    truth = data.truth
    described = [own["about"] for own in everyone]
    own = list(problems.values())
    known = targets.gather(world, config, graph, own, truth, described, data.whole)
    processes = [own["process"] for own in everyone]
    directory = run_directory.begin(
        world, config, resume, graph, schedule, data, known.observe, processes
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
            described = [their["about"] for their in Checks(world).gather(about=about)]
            known = targets.gather(
                world, config, result.topology, own, truth, described
            )
        write_results(
            world, config, problems, data, features, known, directory, result, hosts,
            started, gaps,
        )  # fmt: skip
    finally:
        if directory.lock is not None:
            directory.lock.release()
    missed = result.status == "not converged"
    return NOT_CONVERGED if config.strict and missed else OK


def _n_nodes(world: World, config: RunConfig) -> int:
    """Return the number of nodes of a dry run, which builds no graph."""
    return world.size if world.comm is not None else config.nodes or config.traits.nodes


def write_results(
    world: World,
    config: RunConfig,
    problems: dict[int, Any],
    data: Shards,
    features: Names,
    known: targets.Targets,
    directory: run_directory.RunDirectory,
    result: Result,
    hosts: Sequence[str],
    started: float,
    gaps: list[list[int]],  # node, rows dropped and rows filled, where there are any
) -> None:
    """Write the results, and print the report."""
    from dadmm.cli import models, report, summary  # not needed before the end

    samples = data.samples
    frames = summary.gather_motion(world, problems, result)
    fit = models.describe(world, config, result, problems, data)

    def write_nodes() -> dict[str, Any]:
        directory.parts.close()
        if known.gaps:
            summary.write_imputed(directory.parts.home, problems, samples, result)
        return summary.arrays(world, result, features, frames, known.adrift)

    content = collectively(world, write_nodes)
    elapsed, start = monotonic() - started, directory.checkpoints.start
    numbers = summary.build(
        world, config, result, known, list(samples.values()), hosts, elapsed, start,
        features, fit,
    )  # fmt: skip
    calls, n_bytes = world.sent()
    if gaps:
        numbers["gaps"] = {"on_missing": config.on_missing, "nodes": sorted(gaps)}
    numbers |= {"outside_calls": calls, "outside_bytes": n_bytes}

    def write_all() -> Path:
        model = None if fit.model is None else fit.model.to_json()
        folder = run_directory.finish(world, directory, result, numbers, content, model)
        directory.checkpoints.close()  # last: results are written
        return folder

    folder = collectively(world, write_all)
    if world.rank == 0 and not config.quiet:
        print_out(f"{report.text(config, numbers, folder)}\n")


def read(argv: Sequence[str]) -> CommandLine | SystemExit:
    """Return the command line, or the exit after --help or --version has printed."""
    try:
        return RunConfig.from_argv(argv)
    except SystemExit as leaving:
        return leaving


def settings_of(given: CommandLine | SystemExit) -> identity.Facts:
    """Return versions and settings, which must be the same on all ranks."""
    printed = isinstance(given, SystemExit)
    found: dict[str, Any] = {"--help or --version": printed}
    if not isinstance(given, SystemExit):
        settings = asdict(given.config).items()
        found |= {name: value for name, value in settings if name not in PER_RANK}
        found |= {"--dry-run": given.dry_run, "--resume": str(given.resume)}
    return identity.versions() | identity.settings(found)


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
    options = config.options()
    options["comm"] = replace(options["comm"], comm=world.comm)
    del options["record"]
    options["gather"] = "root"
    try:
        return solve(
            list(problems.values()) if world.comm is None else problems[world.rank],
            graph,
            schedule=schedule,
            record=False,
            callbacks=callbacks,
            checkpoints=directory.checkpoints,
            **options,
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
