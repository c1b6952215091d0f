"""The main job: the stages of a run, from the command line to the results.

All ranks do each stage together. If a stage fails on one of them, all raise.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NoReturn

import numpy as np

from dadmm.cli import setup, targets
from dadmm.cli.progress import FailureMessages, ProgressLine, Signals
from dadmm.cli.tables import Shards
from dadmm.comm import identity
from dadmm.comm.launch_link import wait_until_read
from dadmm.comm.world import Checks, World, collectively, from_rank_0, host
from dadmm.core import files
from dadmm.core.arguments import BAD_INPUT, print_out, report_error
from dadmm.core.documents import write_text
from dadmm.core.errors import CheckpointError, DadmmError, OutputError
from dadmm.runs.config import PER_RANK, CommandLine, RunConfig
from dadmm.runs.folder import NO_RESUME, RunFolder, names_of_run
from dadmm.runs.row_files import PARTS, RowFiles
from dadmm.solver.checkpoint import Checkpoints
from dadmm.solver.plan import Kind
from dadmm.solver.rows import Observe
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


class Job:
    """A run on this rank; `run` goes through its stages, which set the attributes.

    Attributes
    ----------
    config, resume : the settings, and the folder of the run to resume, or None
    graph, schedule : the graph, and the schedule of its edges, or None
    hosts : the host of each rank
    data, problems, features : of the hosted nodes
    targets : what results are compared with
    gaps : node, rows dropped and rows filled, of the nodes that have any
    folder, checkpoints, rows : where the run writes
    result, fit : what the run has found
    """

    def __init__(self, world: World, signals: Signals) -> None:
        self.world, self.signals, self.started = world, signals, monotonic()
        self.over_mpi = world.comm is not None

    def run(self, argv: Sequence[str]) -> int:
        """Run the job, and return the exit code, the same on all ranks."""
        if self.read_settings(argv):
            print_out(self.preview())
            return OK
        self.share_graph()
        self.load_data()
        self.open_folder()
        try:
            self.solve()
            self.write_results()
        finally:
            self.folder.release()
        missed = self.result.status == "not converged"
        return NOT_CONVERGED if self.config.strict and missed else OK

    def read_settings(self, argv: Sequence[str]) -> bool:
        """Read the settings, and build the graph; return whether it is a dry run."""
        world, checks, self._built = self.world, Checks(self.world), None
        given = checks.run(lambda: _read(argv))
        checks.compare(lambda: _facts(given))
        if isinstance(given, CommandLine) and not given.dry_run:
            config = given.config
            if config.on_failure == "continue":
                checks.run(world.check_fault_tolerance)
            self._built = checks.run(lambda: setup.build_graph(world, config))
            checks.compare(lambda: setup.graph_facts(config, self._built))
        self.hosts = [own["host"] for own in checks.gather(host=host())]
        if isinstance(given, SystemExit):
            raise given
        self.config, self.resume = given.config, given.resume
        return given.dry_run

    def preview(self) -> str:
        """Return what a dry run prints; it builds no graph."""
        from dadmm.cli.privacy import leaving  # only a dry run needs it

        world, config = self.world, self.config
        usual = config.traits.nodes
        config.settle(world.size if self.over_mpi else config.nodes or usual)
        text = collectively(world, lambda: "" if world.rank else leaving(config))
        return config.to_toml() + text

    def share_graph(self) -> None:
        """Give all ranks the graph, and each rank its node."""
        world, config = self.world, self.config
        self.graph, self.schedule = setup.share_graph(world, config, self._built)
        config.settle(self.graph.n_nodes)
        self.hosts = setup.place(world, config, self.graph, self.hosts)
        # from here on, rank i has node i

    def load_data(self) -> None:
        """Load or draw the rows, make the problems, and compare those of all ranks."""
        world, config, graph = self.world, self.config, self.graph
        checks, n_nodes = Checks(world), graph.n_nodes
        self.data = data = setup.shards(world, config, graph, checks)
        self.problems = checks.run(lambda: setup.problems(config, data, n_nodes))
        self.features = checks.run(lambda: setup.features(config, data, self.problems))
        own = checks.run(lambda: targets.describe(list(self.problems.values())))
        few = checks.run(lambda: setup.few_rows(config, data.rows, self.problems))
        self._described = own
        of_user = config.data is not None and self.over_mpi
        said: dict[str, Any] = {"few": few} if few and of_user else {}
        if data is not None and data.gaps:
            said["gaps"] = [[i, *counts] for i, counts in data.gaps.items()]
        process = [world.number, host(), os.getpid()]
        everyone = checks.gather(about=own, process=process, **said)
        self.gaps = [row for their in everyone for row in their.get("gaps", [])]
        self._processes = [their["process"] for their in everyone]
        self._warn(sum(their.get("few", 0) for their in everyone), of_user)
        described = [their["about"] for their in everyone]
        self.targets = self._find_targets(described, data.whole)

    def _warn(self, n_few: int, of_user: bool) -> None:
        """Print what summaries reveal."""
        if n_few and not self.config.quiet:
            what, when = "parameters", "in set-up and at checks"
            kind = self.config.plan(self.problems.values()).kind
            if kind is not Kind.METRIC:
                what, merged = "the principal axes that are merged", Kind.MERGED
                when = "in set-up and at the end" if kind is merged else "at the end"
            print_out(FEW_ROWS.format(n_few, self.graph.n_nodes, what, when))
        gathers = self.config.has_subspace and self.config.compares
        if of_user and gathers and not self.config.quiet:
            print_out(GATHERS)

    def _find_targets(
        self, described: list[dict[str, Any]], whole: Any = None
    ) -> targets.Targets:
        problems, truth = list(self.problems.values()), self.data.truth
        return targets.gather(
            self.world, self.config, self.graph, problems, truth, described, whole
        )

    def open_folder(self) -> None:
        """Create the folder of the run, or reopen it to resume the run.

        All checks come before the first change in an existing folder.
        """
        world, taken = self.world, list[RunFolder]()  # by rank 0
        try:
            path = Path(from_rank_0(world, lambda: self._enter(taken)))
            self.folder = taken[0] if taken else RunFolder(path)
            self.checkpoints = self._make_checkpoints(path)
            if self.resume is not None:
                collectively(world, self._reopen)
            self.rows = collectively(world, self._join)
        except DadmmError:
            for folder in taken:
                folder.release()
            raise
        self.checkpoints.sync = self.rows.sync

    def _enter(self, taken: list[RunFolder]) -> str:
        """Lock the folder, on rank 0, and return its path."""
        config = self.config
        if self.resume is None:
            graph = "-".join(Path(name).stem for name in config.topology.split(","))
            name = f"{config.problem.rpartition(':')[2]}-{graph}-{config.scheme}"
            names = self._file_names()
            taken.append(RunFolder.create(config.out, name, config.overwrite, names))
            self._write_settings(taken[0].path)
        else:
            taken.append(RunFolder.open(self.resume, NO_RESUME))
            taken[0].lock(first=True)
            _check_unfinished(self.resume, config.max_iter)
        return str(taken[0].path)

    def _file_names(self) -> set[str]:
        """Return the names of all files that the run may write."""
        config, n_nodes, over_mpi = self.config, self.graph.n_nodes, self.over_mpi
        ranks, by_edge = n_nodes if over_mpi else 1, bool(config.record_edges)
        return names_of_run(n_nodes, ranks, by_edge, over_mpi, config.checkpoint)

    def _write_settings(self, folder: Path) -> None:
        """Write config.toml, with which the run can be repeated elsewhere."""
        changed = {"nodes": self.graph.n_nodes, "out": None, "overwrite": False}
        write_text(folder / "config.toml", self.config.to_toml(**changed))

    def _reopen(self) -> None:
        """Prepare the folder of a resumed run, on rank 0."""
        if self.world.rank == 0:
            config, graph, start = self.config, self.graph, self.checkpoints.start
            n_rows = graph.n_nodes if config.records(graph.n_nodes) else 0
            n_edges = len(graph.edges) if config.record_edges else None
            names = self._file_names()
            self.folder.resume(start, n_rows, n_edges, self._observe, names)
            self._write_settings(self.folder.path)

    def _join(self) -> RowFiles:
        """Open the files for the rows of this rank, and share the lock."""
        rank, config, graph, path = (
            self.world.rank, self.config, self.graph, self.folder.path,
        )  # fmt: skip
        if rank == 0:
            self.folder.write_ranks(self._processes if self.over_mpi else [])
        seen = (path / PARTS).is_dir()
        if not seen:
            check_unseen(config, path, graph.n_nodes)
        nodes, edges = [rank] if self.over_mpi else range(graph.n_nodes), None
        keys = [(i,) for i in nodes] if config.records(graph.n_nodes) else []
        if config.record_edges:
            edges = [(i, j) for i in nodes for j in graph.neighbours[i]]
        start = self.checkpoints.start
        rows = RowFiles(path, rank, keys, edges, self._observe, start)
        if seen and rank:  # they may need the lock after rank 0 fails
            self.folder.lock(first=False)
        return rows

    @property
    def _observe(self) -> Observe:
        return self.targets.observe if self.config.record_angle else {}

    def _make_checkpoints(self, path: Path) -> Checkpoints:
        config, data, n_nodes = self.config, self.data, self.graph.n_nodes
        facts = identity.identity(config.deciding(), self.graph, self.schedule)
        if data.encoding is not None:  # what the nodes have agreed on
            text = json.dumps(data.encoding.to_json())
            facts["table"] = f"{identity.digest({'columns': text}):016x}"
        found = Checkpoints(
            path,
            every=config.checkpoint_every,
            seconds=config.checkpoint_seconds,
            saves=config.checkpoint,
            resume=self.resume is not None,
            identity=facts,
            data={i: _checksum(data, i) for i in data.rows},
        )
        found.open(self.world, tuple(data.rows), n_nodes, config.max_iter)
        return found

    def solve(self) -> None:
        """Run the algorithm, with records, a progress line, and stops by signals."""
        world, config = self.world, self.config
        line, problems = ProgressLine(config.max_iter), self.problems
        shown = [line] if world.rank == 0 and not config.quiet else []
        options = config.options | {"record": False, "gather": "root"}
        options["comm"] = replace(options["comm"], comm=world.comm)
        try:
            self.result = solve(
                problems[world.rank] if self.over_mpi else list(problems.values()),
                self.graph,
                schedule=self.schedule,
                callbacks=[
                    self.rows, self.signals, FailureMessages(world.rank), *shown,
                ],
                checkpoints=self.checkpoints,
                **options,
            )  # fmt: skip
        except DadmmError as error:
            if not self.over_mpi:
                raise
            end_all_ranks(world, error)
        finally:
            line.close()
        if self.result.lost:
            world.adopt(self.result.comm)
            if world.rank == 0:  # the lowest rank that is left prints from now on
                sys.stdout = sys.__stdout__
            self.graph = self.result.topology
            self.hosts = [self.hosts[i] for i in self.result.nodes]
            everyone = Checks(world).gather(about=self._described)
            self.targets = self._find_targets([their["about"] for their in everyone])

    def write_results(self) -> None:
        """Write the results, and print the report."""
        from dadmm.cli import models, summary  # not needed before the end
        from dadmm.cli import printout as report

        world, result, home = self.world, self.result, self.rows.home
        frames = summary.gather_motion(world, self.problems, result)
        self.fit = models.describe(world, self.config, result, self.problems, self.data)

        def write_nodes() -> dict[str, Any]:
            self.rows.close()
            if self.targets.gaps:
                summary.write_imputed(home, self.problems, self.data.rows, result)
            adrift = self.targets.adrift
            return summary.arrays(world, result, self.features, frames, adrift)

        arrays = collectively(world, write_nodes)
        numbers = summary.build(self)

        def write_all() -> None:
            if world.rank == 0:
                model = None if self.fit.model is None else self.fit.model.to_json()
                left = result.nodes.tolist() if result.lost else None
                over = result.converged or result.reason == "no_minimum"
                RunFolder.open(self.folder.path).finish(
                    self.rows, numbers, arrays, model, left, result.lost,
                    is_over=over or left is not None,
                )  # fmt: skip
            self.checkpoints.close()  # last: results are written

        collectively(world, write_all)
        if world.rank == 0 and not self.config.quiet:
            print_out(f"{report.text(self.config, numbers, home)}\n")


def end_all_ranks(world: World, error: Exception) -> NoReturn:
    """End the job after an error that only this rank has; the others wait for it."""
    if isinstance(error, DadmmError):
        report_error(f"rank {world.rank}: {error}")
        world.end(BAD_INPUT)
        os._exit(BAD_INPUT)
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


def _read(argv: Sequence[str]) -> CommandLine | SystemExit:
    """Return the command line, or the exit after --help or --version has printed."""
    try:
        return RunConfig.from_argv(argv)
    except SystemExit as leaving:
        return leaving


def _facts(given: CommandLine | SystemExit) -> identity.Facts:
    """Return versions and settings, which must be the same on all ranks."""
    printed = isinstance(given, SystemExit)
    found: dict[str, Any] = {"--help or --version": printed}
    if not isinstance(given, SystemExit):
        settings = asdict(given.config).items()
        found |= {name: value for name, value in settings if name not in PER_RANK}
        found |= {"--dry-run": given.dry_run, "--resume": str(given.resume)}
    return identity.versions() | identity.settings(found)


def _checksum(data: Shards, node: int) -> str:
    """Return a checksum of the rows of a node."""
    X, y, weight = data.rows[node][:3]
    dense = isinstance(X, np.ndarray)
    arrays = [X] if dense else [X.data, X.indices, X.indptr]
    return identity.of_data(arrays + [part for part in (y, weight) if part is not None])


def check_unseen(config: RunConfig, folder: Path, n_nodes: int) -> None:
    """Raise if this rank, on a machine without the folder, would write files there.

    Only the files of imputed samples are written, into a new folder of this machine.
    """
    needed = {
        "--no-record": config.records(n_nodes),
        "--no-record-edges": config.record_edges,
        "--no-checkpoint": config.checkpoint,
        "--on-failure abort": config.on_failure != "abort",
    }
    if remedy := " ".join(flag for flag, needs in needed.items() if needs):
        raise OutputError(
            f"{folder}, made by rank 0, is not there on {host()}; --out must lie on a "
            f"file system that all ranks share, or use {remedy} (docs/sites.md)"
        )
    if folder.exists():
        raise OutputError(
            f"{folder} on {host()} is not that of this run; remove it there, or choose "
            "another --out"
        )


def _check_unfinished(folder: Path, max_iter: int) -> None:
    """Raise if the run has ended and cannot continue."""
    summary = folder / "summary.json"
    if files.kind(summary) == "none":
        return
    from dadmm.runs.stored import StoredRun, read_summary

    run = StoredRun(folder, read_summary(summary))
    if run.summary.get("lost_nodes"):
        raise CheckpointError(
            f"nodes failed in the run in {folder}, and it ended without them; start a "
            "new run with all nodes"
        )
    done = run.entry("iterations")
    ended = run.summary.get("reason") == "no_minimum"
    if run.entry("converged") or ended:
        status = "no minimum" if ended else run.summary.get("status", "converged")
        raise CheckpointError(
            f"the run in {folder} has ended ({status}) after {done} iterations; there "
            "is nothing to resume"
        )
    if done >= max_iter:
        raise CheckpointError(
            f"the run in {folder} has done {done} iterations, and "
            f"max_iter is {max_iter}; raise max_iter to continue"
        )
