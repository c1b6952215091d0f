"""The main job: the stages of a run, from the command line to the results.

Exit codes: 0 if the results are written, whatever their status; 1 if a rank raised an
error; 2 for invalid input, or output that cannot be written; 3 if the status is "not
converged" and ``--strict`` is set. After a signal, or by mpiexec, it may be another.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from dadmm.cli import setup
from dadmm.cli.progress import Bar, Progress, Signals, laid_out
from dadmm.comm import identity
from dadmm.comm.launch_link import connect_to_launcher, tell_launcher, wait_until_read
from dadmm.comm.world import Checks, World, collectively, connect, from_rank_0
from dadmm.core.arguments import BAD_INPUT, print_out, report_error
from dadmm.core.classes import require
from dadmm.core.documents import Table, to_toml, write_text
from dadmm.core.errors import CheckpointError, DadmmError, OutputError
from dadmm.core.interfaces import Problem
from dadmm.core.linalg import one_blas_thread
from dadmm.data.files import Names
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Topology
from dadmm.problems import IncompletePPCA, StructureFromMotion
from dadmm.runs.config import MAY_CHANGE, CommandLine, RunConfig, in_flags
from dadmm.runs.folder import NO_RESUME, Results, RunFolder, names_of_nodes, rescue
from dadmm.runs.row_files import RowFiles, Stride
from dadmm.solver.checkpoint import Checkpoints
from dadmm.solver.plan import Plan
from dadmm.solver.rows import Observe
from dadmm.solver.solve import Record, run_plan

OK, FAILED, NOT_CONVERGED = 0, 1, 3  # exit codes
HOST = os.uname().nodename
REPORT = ("plotly", "the report", "report")  # what --report needs
TIME_TO_REPORT = 2.0  # seconds in which one rank reports that others failed
TURN = 0.5  # seconds in which a rank reports before the next one would


def main(argv: Sequence[str] | None = None, kind: type[Job] | None = None) -> int:
    """Connect the ranks, run the job of a command line, and return its exit code."""
    with closing(Signals()) as signals:
        connect_to_launcher()
        try:
            world = connect()
        except DadmmError as error:  # before the ranks are connected: only of this one
            return report_error(in_flags(error))
        if world.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (only rank 0 prints)
        job = (kind or Job)(world, signals)
        try:
            with one_blas_thread():
                code = job.run(sys.argv[1:] if argv is None else argv)
        except BaseException as error:  # a user's function may also raise SystemExit
            code = job.fail(error)
        finally:
            print_out()  # flushes what --help and --version print
    if world.rank:  # the code is the same on all ranks, and mpiexec returns rank 0's;
        code = OK  # codes of several ranks may block Open MPI's (prrte issue 1839)
    if world.shrunk and world.comm is not None:
        from dadmm.comm import mpi

        mpi.agree(world.comm, True)  # when all that are left call this
        mpi.leave(code)
    return code


class Job:
    """A run on this rank; `run` goes through its stages, which set the attributes.

    All ranks do each stage together, and if it fails on one of them, all raise a
    `DadmmError`; only in the iterations a rank may raise one alone.
    """

    config: RunConfig
    resume: Path | None  # the folder of the run to resume
    machines: list[str]  # the host of each rank
    # by `setup.build_graph`
    graph: Topology
    schedule: Schedule | None
    # by `setup.load_data`
    data: setup.Shards
    problems: dict[int, Problem]  # of the nodes of this rank
    features: Names
    plan: Plan
    gaps: list[list[int]]  # node, rows dropped and rows filled, where there are any
    processes: list[tuple[str, int]]  # host and process id of each rank
    targets: setup.Targets

    def __init__(self, world: World, signals: Signals) -> None:
        self.world, self.signals, self.started = world, signals, monotonic()
        self.over_mpi = world.comm is not None
        self._is_alone = False  # whether errors are of this rank
        # after a failure: the ranks of this part, and those that failed
        self._left: tuple[Collection[int], Collection[int]] = (), ()

    def run(self, argv: Sequence[str]) -> int:
        """Run the job, and return the exit code, the same on all ranks."""
        given, world = self.read_settings(argv), self.world
        if given is None:
            return OK
        self.config, self.resume = given.config, given.resume
        if given.dry_run:
            from dadmm.cli.privacy import leaving

            usual = world.size if self.over_mpi else self.config.traits.nodes
            self.config.settle(self.config.nodes or usual)
            left = from_rank_0(world, lambda: leaving(self.config))
            print_out(to_toml(self.config.applied()) + left)
            return OK
        if self.config.report:
            collectively(world, require, *REPORT)
        setup.build_graph(self)
        setup.load_data(self)
        try:
            self.open_folder()
            self.solve()
            self.write_results()
        finally:
            if hasattr(self, "folder"):  # else it could not be opened
                self.folder.release()
        if self.config.report:
            from dadmm.show.report import write_page

            write = lambda: write_page([self.rows.home])[0].resolve().as_uri()  # noqa: E731
            print_out(f"{from_rank_0(world, write)}\n")
        missed = self.result.status == "not converged"
        return NOT_CONVERGED if self.config.strict and missed else OK

    def fail(self, error: BaseException) -> int:
        """Report an error, and return the exit code; end all ranks if others wait."""
        world, is_input = self.world, isinstance(error, DadmmError)
        if is_input and not (self._is_alone and self.over_mpi):
            if world.rank == 0:
                report_error(in_flags(error))
            return BAD_INPUT
        if world.comm is None:
            raise error
        if is_input:
            sleep(TURN * min(world.rank, 10))  # a NaN fails neighbours: one reports
            report_error(f"rank {world.rank}: {error}")
            world.end(BAD_INPUT)
            os._exit(BAD_INPUT)
        from dadmm.comm.mpi import failed_ranks

        failed = failed_ranks(world.comm, error)
        if not failed:
            try:
                world.abort(error)
            finally:  # MPICH's Abort may return
                os._exit(FAILED)
        # before the first iteration or after the last: the run cannot continue
        if world.rank == min(set(range(world.size)) - set(failed)):
            names = ", ".join(map(str, failed))
            report_error(
                f"rank {names} failed outside the iterations, during set-up or while "
                "results were written; use --resume, or start a new run if there is "
                "no checkpoint"
            )
            wait_until_read(sys.stderr)
            os._exit(FAILED)  # the others notice; an Abort may wait for failed ranks
        sleep(TIME_TO_REPORT)  # mpiexec may kill all ranks when this one ends
        os._exit(OK)  # codes of several ranks may block mpiexec, as in `main`

    def read_settings(self, argv: Sequence[str]) -> CommandLine | None:
        """Return the command line; None after --help or --version has printed."""
        checks = Checks(self.world)
        try:
            given = checks.run(lambda: RunConfig.from_argv(argv))
        except SystemExit:
            given = None
        facts: Table = {"--help or --version": given is None}  # the same on all ranks
        if given is not None:
            config = given.config
            checks.run(lambda: config.options)  # imports a scheme of one's own
            if self.over_mpi and config.on_failure == "continue" and not given.dry_run:
                from dadmm.comm.mpi import check_fault_tolerance

                checks.run(check_fault_tolerance)
            facts |= asdict(config) | {"resume": str(given.resume)}
            facts["--dry-run"] = given.dry_run
            del facts["quiet"]  # in which ranks may differ
        everyone = checks.gather(lambda: identity.settings(facts), host=HOST)
        self.machines = [own["host"] for own in everyone]
        return given

    def open_folder(self) -> None:
        """Create or reopen the folder of the run, after all checks of what it has."""
        world, config, graph = self.world, self.config, self.graph
        path, run, earlier = from_rank_0(world, self._enter)
        if world.rank:
            self.folder = RunFolder(Path(path), graph.n_nodes, run=run)
        if earlier:  # it is removed when all ranks can run
            collectively(world, self._sees_folder, earlier)
            from_rank_0(world, self.folder.clear_earlier)
        facts = identity.identity(config.applied(MAY_CHANGE), graph, self.schedule)
        facts["run"] = self.folder.run  # no file of another run with equal settings
        if self.data.encoding is not None:  # what the nodes have agreed on
            text = json.dumps(self.data.encoding.to_json())
            facts["table"] = identity.digest({"columns": text})
        self.checkpoints = Checkpoints(
            self.folder.path,
            every=config.checkpoint_every,
            seconds=config.checkpoint_seconds,
            saves=config.checkpoint,
            resume=self.resume is not None,
            identity=facts,
            data={i: identity.of_data(p.arrays()) for i, p in self.data.rows.items()},
        )
        self.checkpoints.open(
            world, tuple(self.data.rows), graph.n_nodes, config.max_iter
        )
        n_edges = len(graph.edges) if config.record_edges else None
        stride = Stride(config.record_every, graph.n_nodes, n_edges or 0)
        angles = self.targets.W if config.record_angle else ()
        observe = {name: partial(self.targets.angles, name) for name in angles}
        if self.resume is not None:
            start = self.checkpoints.start
            n_rows = graph.n_nodes if config.record else 0
            more = n_rows, n_edges, observe, stride.step(start)
            from_rank_0(world, lambda: self.folder.resume(start, *more))
        self.rows = collectively(world, self._open_rows, observe, stride)
        self.checkpoints.sync = self.rows.sync

    def _enter(self) -> list[str]:
        """Lock the folder, on rank 0; return its path, its run, and an earlier run."""
        config = self.config
        if self.resume is None:
            graph = "-".join(Path(name).stem for name in config.topology.split(","))
            words = config.problem, graph, config.scheme  # of package.module:Class
            self.folder = RunFolder.create(
                config.out, "-".join(word.rpartition(":")[2] for word in words),
                config.overwrite, self.graph.n_nodes,
            )  # fmt: skip
        else:
            self.folder = RunFolder.open(self.resume, NO_RESUME)
            self.folder.lock(first=True)
            _check_unfinished(self.resume, config.max_iter)
        folder, earlier = self.folder, self.folder.earlier
        return [str(folder.path), folder.run, "" if earlier is None else earlier.run]

    def _sees_folder(self, run: str) -> bool:
        """Return whether this rank sees the folder of a run; raise if it must."""
        there = ""
        with suppress(OutputError):
            there = RunFolder.open(self.folder.path).run
        if there != run:
            check_unseen(self.config, self.folder.path)
        return there == run

    def _open_rows(self, observe: Observe, stride: Stride) -> RowFiles:
        """Open the files for the rows of this rank, and share the lock."""
        rank, config, graph = self.world.rank, self.config, self.graph
        path, nodes = self.folder.path, self.world.hosted(graph.n_nodes)
        if rank == 0:  # the run can be repeated elsewhere
            again = replace(config, nodes=graph.n_nodes, out=None, overwrite=False)
            write_text(path / "config.toml", to_toml(again.applied()))
            if (hosts := self.world.hosts) is not None:  # to identify failed ranks
                lines = ["rank,nodes,host,pid"]
                for k, (host, pid) in enumerate(self.processes):
                    own = names_of_nodes(np.flatnonzero(hosts == k).tolist())
                    lines.append(f"{k},{own},{host},{pid}")
                write_text(path / "ranks.csv", "\n".join([*lines, ""]))
            tell_launcher(folder=str(path.absolute()))
        seen = rank == 0 or self._sees_folder(self.folder.run)
        keys = [(i,) for i in nodes] if config.record else []
        edges = None
        if config.record_edges:
            edges = [(i, j) for i in nodes for j in graph.neighbours[i]]
        more = observe, self.checkpoints.start, stride
        rows = RowFiles(self.folder, rank, nodes, keys, edges, *more)
        if seen and rank:  # they may need the lock after rank 0 fails
            self.folder.lock(first=False)
        return rows

    def solve(self) -> None:
        """Run the algorithm, with records, a progress line, and stops by signals."""
        world, config = self.world, self.config
        given = config.options | {"record": Record(False), "gather": "root"}
        given |= vars(given.pop("comm"))  # how ranks wait, and survive
        is_quiet = config.quiet or world.rank > 0
        bar = None if is_quiet else Bar(config.max_iter, "iteration")
        progress = Progress(bar, self.problems)
        self._is_alone = True
        try:
            self.result = run_plan(
                self.plan, world, self.problems, self.graph, given, self.schedule,
                [self.rows, self.signals, progress], self.checkpoints,
                began=self.started,
            )  # fmt: skip
        finally:
            progress.close()
        self._is_alone = False
        if self.result.lost:
            self._adopt_rest()

    def _adopt_rest(self) -> None:
        """Continue with the ranks that are left."""
        world, result = self.world, self.result
        comm = world.comm = result.comm
        world.rank, world.size, world.shrunk = comm.rank, comm.size, True
        if world.rank == 0:  # the lowest rank that is left prints from now on
            sys.stdout = sys.__stdout__
        assert world.hosts is not None
        own, placed = np.array([self.rows.rank]), world.hosts
        left_at = np.delete(placed, result.lost)
        self._left = world.gather(own, True), np.setdiff1d(placed, left_at)
        # on ranks other than 0 the result has only their own nodes
        kept, self.graph = {*result.nodes.tolist()}, result.topology
        self.problems = {i: p for i, p in self.problems.items() if i in kept}
        rows = {i: own for i, own in self.data.rows.items() if i in kept}
        self.data = self.data._replace(rows=rows, whole=None)
        nodes = np.array([*self.problems])
        left = np.sort(world.gather(nodes, True))  # of all ranks
        world.share_nodes(np.searchsorted(left, nodes).tolist(), len(left))
        gappy = any(isinstance(own, IncompletePPCA) for own in self.problems.values())
        everyone = Checks(world).gather(host=HOST, gappy=gappy)
        self.machines = [their["host"] for their in everyone]
        gaps = any(their["gappy"] for their in everyone)
        self.targets = setup.find_targets(self, gaps)

    def write_results(self) -> None:
        """Write the results; raise errors of rows and checkpoints after that."""
        from dadmm.cli import results  # not needed before the end

        world, config, result = self.world, self.config, self.result
        motion = [
            problem.motion(result.of(i)) for i, problem in self.problems.items()
            if isinstance(problem, StructureFromMotion)
        ]  # fmt: skip
        frames = world.gather_nodes(motion) if motion else None
        fit = results.describe(self)
        others = Checks(world)
        others.run(self.rows.close)
        others.run(lambda: results.write_imputed(self))
        summary = results.summarise(self, fit)  # rank 0 waits for all ranks

        def finish() -> None:
            arrays = results.arrays(result, self.features, frames, self.targets.adrift)
            model = None if fit.model is None else fit.model.to_json()
            found, home = Results(summary, arrays, model), self.rows.home
            left = {*result.nodes.tolist()} if result.lost else None
            over = result.converged or result.reason == "no_minimum" or bool(left)
            try:
                self.folder.finish(self.rows, found, over, left, *self._left)
            except OutputError as error:
                whole = (home / "summary.json").exists()  # but for rows
                settings = to_toml(config.applied())
                place = None if whole else rescue(home, settings, found)
                if place is None:
                    raise
                raise OutputError(f"{error}; the results are in {place}") from None

        from_rank_0(world, finish)
        others.run(self.checkpoints.close)
        others.gather()
        if world.rank == 0 and not config.quiet:
            print_out(f"{laid_out(summary.text(config, self.rows.home))}\n")


def check_unseen(config: RunConfig, folder: Path) -> None:
    """Raise if a rank without the folder would write there more than imputed rows."""
    needed = {
        "--no-record": config.record,
        "--no-record-edges": config.record_edges,
        "--no-checkpoint": config.checkpoint,
        "--on-failure abort": config.on_failure != "abort",
    }
    remedy = " ".join(flag for flag, needs in needed.items() if needs)
    if remedy or folder.exists():
        also = f", or use {remedy} (docs/sites.md)" * bool(remedy)
        raise OutputError(
            f"{folder}, made by rank 0, is not there on {HOST}, or another run has "
            f"made it; --out must be new, and on a file system that all ranks share"
            f"{also}"
        )


def _check_unfinished(folder: Path, max_iter: int) -> None:
    """Raise if the run in a folder has nothing left to do."""
    from dadmm.runs.attempt import read_progress

    found = read_progress(folder)
    if found.summary.get("lost_nodes"):
        why = "has lost nodes, and ended without them; start a new run with all nodes"
    elif not found.is_done(max_iter):
        return
    elif found.status == "max_iter":
        why = f"has done {found.iterations} iterations of {max_iter}; raise --max-iter"
    else:
        why = f"has ended after {found.iterations} iterations ({found.label}); nothing "
        why += "is left to resume"
    raise CheckpointError(f"the run in {folder} {why}")
