"""Compare methods, ways of sending and graphs: ``dadmm compare --method snap ...``.

Every combination is run for every seed, which sets data and start, until all nodes are
and stay within the goal. All are run in one job: by one process, or by MPI ranks with a
node each. Finished runs are kept in the folder, and are not repeated when the same
command is given again.

Exit codes: 0 success, 1 if a rank raised an error, 2 invalid input.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from dadmm.baselines import Algorithm
from dadmm.baselines.algorithms import check_suited
from dadmm.cli.comparison import write_comparison
from dadmm.cli.job import OK, REPORT, Job, run_job
from dadmm.cli.methods import Method, parse_method, parse_sending
from dadmm.cli.progress import Bar
from dadmm.cli.trials import (
    Arrival,
    Setting,
    Watch,
    Wire,
    attempt,
    find_best,
    find_optimum,
    measure,
    usual_penalty,
)
from dadmm.comm import identity
from dadmm.comm.sending import check_drop
from dadmm.comm.world import collectively, from_rank_0
from dadmm.core.arguments import Parser, print_out
from dadmm.core.classes import require
from dadmm.core.documents import Table, writing
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix
from dadmm.penalty import Scheme, name_of
from dadmm.runs.config import RunConfig
from dadmm.solver.plan import Kind
from dadmm.timing.network import Network

CELLS = "cells.jsonl"  # finished runs, one a line
TUNING = (1001, 1002)  # seeds on which settings are found
TARGETS = {True: 1.0, False: 1e-6}  # degrees for a subspace, else a relative distance
ABOUT = (
    "Compare methods on one problem by iterations, bytes and modelled seconds. The "
    "settings of dadmm run are allowed, too: --problem, --data, --nodes, "
    "--coordinates, --max-iter, --report and others."
)
OWN = {"--scheme": "--method", "--seed": "--seeds", "--data-seed": "--seeds"}


def make_parser() -> Parser:
    """Return the parser of the flags that `dadmm run` does not have."""
    parser = Parser("compare", ABOUT, allow_abbrev=False)
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--method", metavar="NAME", **several, help="a scheme (snap, nap, ...), extra, "
        "nids, diging, allreduce, one_sum, or package.module:Class, with settings as "
        "in fixed:eta0=2; best is tuned on other seeds; may be repeated")  # fmt: skip
    add("--payload", metavar="NAME", **several, help="a way of sending, as quantised:4 "
        "or float64,censor=0.03; may be repeated")  # fmt: skip
    add("--topology", metavar="NAME", **several, help="a graph; may be repeated")
    add("--seeds", type=int, default=10, metavar="N", help="seeds 1 to N (default: 10)")
    add("--to", type=float, metavar="X", help="the goal: largest relative distance of "
        "a node from the pooled optimum in the metric (default: 1e-6); for ppca the "
        "angle to the centralised subspace in degrees (default: 1)")  # fmt: skip
    add("--network", metavar="NAME", **several, help="model seconds on a preset (host, "
        "lan, wan, wireless) or a TOML file; may be repeated (default: lan, wan, "
        "wireless)")  # fmt: skip
    add("--work", type=float, default=1e-4, metavar="SECONDS", help="computing time of "
        "a node in an iteration, for the modelled seconds (default: 1e-4)")  # fmt: skip
    add("--out", default="compare", metavar="FOLDER", help="folder of the results; "
        "finished runs in it are kept (default: compare)")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the methods of a command line and return the exit code."""
    return run_job(Comparison, argv)


class Cell(NamedTuple):
    """One run of a comparison."""

    seed: int
    topology: str
    payload: str
    method: Method


class Comparison(Job):
    """All runs of a comparison on this rank; each is set up as those of `Job` are."""

    def run(self, argv: Sequence[str]) -> int:
        """Do the runs that are not done yet, and write the table and the figures."""
        try:
            collectively(self.world, self._read, list(argv))
        except SystemExit:  # --help
            return OK
        given, done = self.given, from_rank_0(self.world, self._done)
        cells = [
            Cell(*parts)
            for parts in product(
                range(1, given.seeds + 1), given.topology, self.sendings, self.methods
            )
        ]
        rows, bar = [], Bar(len(cells), "runs")
        for k, cell in enumerate(cells):
            facts = self._facts(cell) | {"settings": _digest(self._common)}
            key = _digest(facts)
            if key not in done:
                self._keep(done, key, facts | self._cell(cell, done))
            rows.append(done[key])
            if self.world.rank == 0 and bar.due():
                bar.show(k + 1)
        about, names = self._sentence(), list(self.networks)
        folder, report = Path(given.out), self.config.report

        def write() -> str:
            return write_comparison(folder, rows, about, names, report)

        print_out(from_rank_0(self.world, write))
        return OK

    def _read(self, argv: list[str]) -> None:
        """Read the command line, on each rank; raise if something is unknown."""
        given, rest = make_parser().parse_known_args(argv)
        for word in rest:
            flag = word.partition("=")[0]
            if flag in OWN:
                raise ConfigError(f"{flag} is not for compare; use {OWN[flag]}")
        given.topology = given.topology or ["ring"]
        flags = ["--topology", given.topology[0], "--placement", "blocks"]
        config = RunConfig.from_argv([*rest, *flags]).config
        if config.has_subspace:
            config = replace(config, compare_centralised=True)
        given.to = TARGETS[config.has_subspace] if given.to is None else given.to
        if not 1 <= given.seeds < TUNING[0]:
            raise ConfigError(f"--seeds must be from 1 to {TUNING[0] - 1}")
        if not 0.0 < given.to < 90.0:
            raise ConfigError(f"--to must be above 0 and below 90, got {given.to:g}")
        if not 0.0 <= given.work < 1e9:
            raise ConfigError(f"--work must be from 0 to 1e9, got {given.work:g}")
        if config.report:
            require(*REPORT)
        self.given, self.config = given, config
        self.machines = [""] * self.world.size
        self.methods = [parse_method(text) for text in given.method or ["snap"]]
        usual = config.options["sending"]
        texts = given.payload or [str(config.payload)]
        self.sendings = {text: parse_sending(text, usual) for text in texts}
        for method, sending in product(self.methods, self.sendings.values()):
            if isinstance(made := method.build(), Scheme):
                check_drop(sending, name_of(made))
        names = given.network or ["lan", "wan", "wireless"]
        self.networks = {name: Network.read(name) for name in names}
        usual_nodes = self.world.size if self.over_mpi else config.traits.nodes
        self.n_nodes = config.nodes or usual_nodes
        # what decides the numbers of all cells
        self._common = config.deciding() | identity.versions() | {
            "to": given.to, "work": given.work, "nodes": self.n_nodes,
            "networks": " ".join(one.to_toml() for one in self.networks.values()),
        }  # fmt: skip
        self._loaded = (0, "")  # seed and graph
        self._data_of = (0, 0)  # seed and number of nodes

    def _facts(self, cell: Cell) -> Table:
        """Return what the row of a cell begins with."""
        return {
            "problem": self.config.problem, "topology": cell.topology,
            "nodes": self.n_nodes, "method": cell.method.text,
            "payload": cell.payload, "seed": cell.seed,
        }  # fmt: skip

    def _cell(self, cell: Cell, done: Table) -> Table:
        """Run one cell; return what it took, on rank 0."""
        best, tuned, name = None, "", cell.method.tuned
        if name:
            best = self._tune(cell, done)
            if best is None:
                return {"ended": f"no {name} found", "tuned": ""}
            tuned = f"{name}={best:.4g}"
        watch = self._run(cell, best, self.config.max_iter)
        over_tree = getattr(cell.method.make, "uses_tree", False)
        wire = Wire(self.networks, self.given.work, over_tree)
        found = measure(self.world, self.graph, watch, wire)
        about = {"coordinates": self.plan.name, "known": self._setting.known}
        about["nodes"] = self.graph.n_nodes  # a file may decide it
        return {"tuned": tuned, **about, **found}

    def _run(self, cell: Cell, best: float | None, cap: int) -> Watch:
        """Run a method, until its nodes have arrived or ``cap`` iterations are done."""
        self._prepare(cell)
        made, sending = cell.method.build(best), self.sendings[cell.payload]
        if isinstance(made, Algorithm):
            first = next(iter(self._setting.problems.values()))
            kind = Kind.RAW if self.plan.kind is Kind.RAW else Kind.METRIC
            check_suited(made, first, kind, sending, self.schedule)
        arrival, world = Arrival(self.given.to, cap), self.world
        self._is_alone = True
        found = attempt(
            world, self._setting, self.graph, self.schedule, made, sending, arrival
        )
        self._is_alone = False
        return found

    def _tune(self, cell: Cell, done: Table) -> float | None:
        """Return the best value of a setting, found on other seeds than those shown."""
        key = _digest(self._common | self._facts(cell) | {"seed": "tuning"})
        if key not in done:

            def latest(value: float, cap: int) -> int | None:
                last = 0
                for seed in TUNING:
                    watch = self._run(cell._replace(seed=seed), value, cap)
                    if watch.arrival.for_good is None:
                        return None
                    last = max(last, watch.arrival.for_good)
                return last

            start = 1.0
            if issubclass(cell.method.make, Scheme):
                self._prepare(cell._replace(seed=TUNING[0]))
                start = usual_penalty(self.world, self._setting, self.graph)
            self._keep(done, key, find_best(latest, start, self.config.max_iter))
        found: float | None = done[key]
        return found

    def _prepare(self, cell: Cell) -> None:
        """Load or draw the data of a seed, and build the graph, unless it was done."""
        config, (seed, topology, *_) = self.config, cell
        if self._loaded == (seed, topology):
            return
        # `default_rng([s, 0])`, of a shared start, is `default_rng(s)`, of the data
        self.config = replace(config, topology=topology, data_seed=seed, seed=seed + 1)
        self.build_graph()
        if self._data_of != (seed, self.graph.n_nodes):
            self.load_data()
            self._setting, self._data_of = self._goal(), (seed, self.graph.n_nodes)
        self.config, self._loaded = config, (seed, topology)

    def _goal(self) -> Setting:
        """Return the problems of a seed, and the distance to compare with the goal."""
        config, world = self.config, self.world
        names = ("coordinates", "init", "seed")
        options = {name: getattr(config, name) for name in names}
        if not config.has_subspace:
            found = find_optimum(world, self.problems, self.graph, self.given.to)
            return found._replace(options=options)
        targets = self.targets
        if "angle_to_centralised" not in targets.W:
            raise ConfigError(
                "with missing entries the centralised subspace is not known, so "
                "methods cannot be compared; use complete data"
            )

        def angle(theta: Matrix) -> float:
            most = float(abs(theta).max())
            if not most < 1e100:  # it diverges, which an angle does not show
                return most
            return float(targets.angles("angle_to_centralised", theta).max())

        return Setting(self.problems, angle, options | {"bound_angle": False})

    def _sentence(self) -> str:
        """Return what is compared, in a sentence or two."""
        given, config = self.given, self.config
        goal = f"{given.to:g} of the pooled optimum, relative, in its metric"
        if config.has_subspace:
            goal = f"{given.to:g} degrees of the centralised subspace"
        tuned = [method.text for method in self.methods if method.tuned]
        said = f"{config.problem}, {given.seeds} seeds: until all nodes are and stay "
        said += f"within {goal}; coordinates {config.coordinates}. "
        said += f"Seconds are modelled, with {given.work:g} s of work per node and "
        said += "iteration; bytes and seconds are with set-up and end."
        if tuned:
            said += f" Tuned on other seeds: {', '.join(tuned)}."
        return said

    def _done(self) -> Table:
        """Return the finished runs of the folder, on rank 0."""
        folder, done = Path(self.given.out), Table()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / CELLS, "a+", encoding="utf-8") as file:
                file.seek(0)
                for line in file.read().splitlines():
                    with suppress(ValueError):  # the job was ended while it wrote this
                        key, done[key] = json.loads(line)
                file.write("\n")
        return done

    def _keep(self, done: Table, key: str, found: object) -> None:
        """Note a finished run, and append it to the folder, on rank 0."""
        done[key] = found

        def append() -> None:
            if self.world.rank == 0:
                with (
                    writing(self.given.out),
                    open(Path(self.given.out) / CELLS, "a", encoding="utf-8") as file,
                ):
                    file.write(f"{json.dumps([key, found])}\n")

        collectively(self.world, append)


def _digest(facts: Table) -> str:
    return f"{identity.digest(identity.settings(facts)):016x}"
