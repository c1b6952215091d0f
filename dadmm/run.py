"""Run the main job: ``mpiexec -n 20 python -m dadmm.run``, or without mpiexec.

Exit codes: 0 the run ended and its results are written (converged, at max_iter, or
stopped by a signal or by max_seconds), 1 a rank raised an error, 2 bad input or output
that cannot be written, 3 not converged under ``--strict``. Other codes are those of a
process that a signal ended (130 after a second Ctrl-C), or mpiexec's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from dadmm.admm.algorithm import Watcher
from dadmm.cli import privacy, report, run_directory, setup
from dadmm.cli.config import Request, RunConfig
from dadmm.cli.progress import Losses, ProgressLine, Signals
from dadmm.core.errors import DadmmError
from dadmm.core.layout import Matrix
from dadmm.core.linalg import one_thread
from dadmm.data.textfiles import Names
from dadmm.exchange import identity
from dadmm.exchange.launcher import report_in
from dadmm.exchange.world import connect, together
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.problems import IncompletePPCA, StructureFromMotion, motion
from dadmm.results import output
from dadmm.solver.solve import Result, solve

OK, FAILED, BAD_INPUT, NOT_CONVERGED = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job of a command line and return its exit code."""
    world, signals = None, Signals()
    report_in()
    try:
        world = connect()
        if world.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (rank 0 speaks for all)
        with one_thread():
            code = run(world, sys.argv[1:] if argv is None else argv, signals)
    except DadmmError as error:
        if world is None or world.rank == 0:
            say(str(error))
        code = BAD_INPUT
    except Exception as error:
        if world is None or world.comm is None:
            raise
        dead = world.dead(error)
        if dead:  # before the first iteration or after the last: nobody can go on
            if world.rank == min(set(range(world.size)) - set(dead)):
                say(lost_outside(dead))
            os._exit(FAILED)  # which the others notice; an Abort may wait for the dead
        world.abort(error)  # ends all ranks, so that none waits for this one
        os._exit(FAILED)  # MPICH's Abort may return first, and all has been said
    finally:
        signals.close(ranked=world is not None and world.comm is not None)
    if world is not None and world.outlived:
        world.leave(code)
    return code


def say(sentence: str) -> None:
    """Tell the user what to mend."""
    print(f"dadmm: error: {sentence}", file=sys.stderr, flush=True)


def lost_outside(dead: Sequence[int]) -> str:
    """Return what to say of ranks that died when their survivors cannot go on."""
    names = ", ".join(map(str, dead))
    return (
        f"rank {names} died outside the iterations, while the run was set up or its "
        "results were written; go on with --resume, or start anew if it has saved "
        "no checkpoint"
    )


def run(world: Any, argv: Sequence[str], signals: Signals) -> int:
    """Run the job on this rank of the world and return the exit code of all."""
    started = monotonic()
    config, dry_run, resume = read(world, argv)
    if dry_run:
        print(config.to_toml() + privacy.leaving(config), end="")
        return OK
    if config.on_failure == "continue":
        together(world, world.check_fault_tolerance)
    graph, schedule = setup.graph(world, config)
    world.compare({"graph": identity.of_graph(graph, schedule)})
    hosts = setup.place(world, config, graph)  # from here on a rank is its node
    data = setup.shards(world, config, graph.n_nodes)
    samples, truth = data.samples, data.truth
    problems = together(world, setup.problems, config, samples, graph.n_nodes)
    said = report.announcement(world, config)
    if said is not None and not config.quiet:
        print(said, flush=True)
    features = together(world, setup.features, config, data, problems)
    targets = report.targets(world, config, list(problems.values()), truth)
    work = run_directory.begin(
        world, config, resume, graph, schedule, samples, targets.observe
    )
    try:
        result = solve_watched(world, config, graph, schedule, problems, work, signals)
        if result.lost:
            world.outlive(result.comm)
            if world.rank == 0:  # from now on this one speaks for all
                sys.stdout = sys.__stdout__
            hosts = [hosts[i] for i in result.nodes]
            targets = report.targets(world, config, list(problems.values()), truth)
        conclude(
            world, config, problems, samples, features, targets, work, result, hosts,
            started,
        )  # fmt: skip
    finally:
        work.claim.give_up()
    return NOT_CONVERGED if config.strict and not result.converged else OK


def conclude(
    world: Any,
    config: RunConfig,
    problems: dict[int, Any],
    samples: dict[int, Matrix],
    features: Names,
    targets: report.Targets,
    work: run_directory.Session,
    result: Result,
    hosts: Sequence[str],
    started: float,
) -> None:
    """Write the results, and say what came out."""
    together(world, work.parts.close)
    rows, elapsed = samples.values(), monotonic() - started
    summary = report.summary(
        world, config, result, targets, rows, hosts, elapsed, work.checkpoints.start,
        features,
    )  # fmt: skip
    arrays = result.layout.views(result.theta)._asdict()
    arrays |= {"edges": result.nodes[result.topology.edges], "eta": result.eta}
    arrays |= together(world, reconstruct, world, problems, result, targets.adrift)
    arrays |= {} if features is None else {"feature_names": np.array(features)}
    traffic = result.traffic
    arrays |= {k: v for k, v in traffic._asdict().items() if k.startswith("edge_")}
    if targets.gaps:
        together(world, impute, work.parts.home, problems, samples, result)
    calls, data = world.sent()
    summary |= {"outside_calls": calls, "outside_bytes": data}
    folder = together(world, run_directory.finish, world, work, result, summary, arrays)
    together(world, work.checkpoints.close)  # whose failure costs no results
    if world.rank == 0 and not config.quiet:
        print(report.words(config, summary, folder))


def read(world: Any, argv: Sequence[str]) -> Request:
    """Return what all ranks are asked for.

    Each rank reads its own command line and file, perhaps on a host of its own.
    """
    asked: SystemExit | None = None

    def parse() -> Request | None:
        nonlocal asked
        try:
            return RunConfig.from_argv(argv)
        except SystemExit as leaving:  # for help or version, which has been printed
            asked = leaving
            return None

    found = together(world, parse)
    given: dict[str, Any] = {"--help or --version": asked is not None}
    if found is not None:
        given |= asdict(found.config)
        given |= {"--dry-run": found.dry_run, "--resume": str(found.resume)}
        del given["quiet"]  # the one setting that is each rank's own
    world.compare(identity.versions() | identity.settings(given))
    if found is None:
        raise asked or SystemExit
    return found


def solve_watched(
    world: Any,
    config: RunConfig,
    graph: Topology,
    schedule: Schedule | None,
    problems: dict[int, Any],
    work: run_directory.Session,
    signals: Signals,
) -> Result:
    """Run the algorithm while recording it, showing it, and heeding signals."""
    line = ProgressLine(config.max_iter)
    watchers: list[Watcher] = [work.parts, signals, Losses(world.rank)]
    if world.rank == 0 and not config.quiet:
        watchers.append(line)
    try:
        return solve(
            list(problems.values()) if world.comm is None else problems[world.rank],
            graph,
            comm=world.comm,
            schedule=schedule,
            record=False,
            watchers=watchers,
            checkpoints=work.checkpoints,
            **config.solver_settings(),
        )
    except DadmmError as error:
        if world.comm is None:
            raise
        # Inside the loop an error is this rank's alone, and the others wait for it.
        say(f"rank {world.rank}: {error}")
        world.end(BAD_INPUT)
        os._exit(BAD_INPUT)
    finally:
        line.close()


def reconstruct(
    world: Any, problems: dict[int, Any], result: Result, adrift: bool
) -> dict[str, Any]:
    """Return structure and motion after the metric upgrade, of a run that has any.

    On rank 0, which gathers the motion; elsewhere there is nothing. A structure that
    is adrift, known up to a translation, is put about the origin.
    """
    cameras = {i: p for i, p in problems.items() if isinstance(p, StructureFromMotion)}
    if not cameras:
        return {}
    own = np.vstack([p.motion(result.of(i)) for i, p in cameras.items()])
    structure = result.layout.views(result.theta.mean(axis=0)).W
    if adrift:
        structure = structure - structure.mean(axis=0)
    rows = world.gather(own)
    return {} if world.rank else motion.upgrade(rows, structure)._asdict()


def impute(
    folder: Path, problems: dict[int, Any], samples: dict[int, Matrix], result: Result
) -> None:
    """Write what a node makes of its missing entries.

    The files, which only their owner can read, are ``imputed-00000.npz`` and so on by
    node: the filled ``samples``, the ``variances`` of what was filled in, and the
    ``latent`` means.
    """
    for i, problem in problems.items():
        if isinstance(problem, IncompletePPCA):
            filled, variances = problem.impute(result.of(i), samples[i])
            latent = problem.latent(result.of(i), samples[i])
            found = {"samples": filled, "variances": variances, "latent": latent}
            path = folder / f"imputed-{i:05d}.npz"
            output.write_arrays(path, found, private=True)


if __name__ == "__main__":
    sys.exit(main())
