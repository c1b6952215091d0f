"""Compare methods, ways of sending and graphs: ``dadmm compare --method snap ...``.

Every combination is run for every seed, which sets data and start, until all nodes are
and stay within the goal. All are run in one job: by one process, or by MPI ranks with a
node each. Finished runs are kept in the folder, and are not repeated when the same
command is given again.

Exit codes: 0 success, 1 if a rank raised an error, 2 invalid input.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from dadmm.baselines.run import check_suited
from dadmm.cli.comparison import write_comparison
from dadmm.cli.job import OK, Job
from dadmm.cli.methods import Method, parse_method, parse_sending
from dadmm.cli.progress import Bar, Signals
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
from dadmm.comm.world import collectively, connect, from_rank_0
from dadmm.core.arguments import Parser, print_out, program, report_error
from dadmm.core.errors import ConfigError, DadmmError, OutputError
from dadmm.core.threads import one_blas_thread
from dadmm.penalty import name_of
from dadmm.runs.config import RunConfig
from dadmm.solver.plan import Kind, abilities
from dadmm.timing.network import Network

CELLS = "cells.jsonl"  # finished runs, one a line
TUNING = (1001, 1002)  # seeds on which settings are found
TARGETS = {True: 1.0, False: 1e-6}  # degrees for a subspace, else a relative distance
OWN = {"--scheme": "--method", "--seed": "--seeds", "--data-seed": "--seeds"}


def make_parser() -> Parser:
    """Return the parser of the flags that `dadmm run` does not have."""
    parser = Parser(
        prog=program("compare"), allow_abbrev=False,
        description="Compare methods on one problem by iterations, bytes and modelled "
        "seconds. The settings of dadmm run are allowed, too: --problem, --data, "
        "--nodes, --coordinates, --max-iter and others.",
    )  # fmt: skip
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    add("--method", metavar="NAME", **several, help="a scheme (snap, nap, ...), extra, "
        "nids, diging, allreduce, one_sum, or package.module:Class, with settings as "
        "in fixed:eta0=best, found on other seeds; may be repeated")  # fmt: skip
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
    with closing(Signals()) as signals:
        try:
            world = connect()
        except DadmmError as error:
            return report_error(error)
        if world.rank:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (only rank 0 prints)
        job = Comparison(world, signals)
        try:
            with one_blas_thread():
                return job.run(sys.argv[1:] if argv is None else argv)
        except SystemExit:  # --help
            return OK
        except BaseException as error:
            return job.fail(error)
        finally:
            print_out()


class Comparison(Job):
    """All runs of a comparison on this rank; each is set up as those of `Job` are."""

    given: Namespace
    methods: list[Method]

    def run(self, argv: Sequence[str]) -> int:
        """Do the runs that are not done yet, and write the table and the figures."""
        collectively(self.world, self._read, list(argv))
        self.machines = [""] * self.world.size
        done = json.loads(from_rank_0(self.world, self._done))
        rows, cells = [], list(self._cells())
        bar = Bar(len(cells), "runs") if self.world.rank == 0 else None
        for k, (facts, seed, topology, sending, method) in enumerate(cells):
            key = f"{identity.digest(identity.settings(facts)):016x}"
            if key not in done:
                found = self._cell(seed, topology, sending, method, done)
                done[key] = facts | found
                collectively(self.world, self._keep, key, done[key])
            rows.append(done[key])
            if bar is not None and bar.due():
                bar.show(k + 1)
        folder, networks = Path(self.given.out), list(self.wire.networks)
        about = self._sentence()
        print_out(
            from_rank_0(
                self.world, lambda: write_comparison(folder, rows, about, networks)
            )
        )
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
        if given.seeds < 1 or given.seeds >= TUNING[0]:
            raise ConfigError(f"seeds must be from 1 to {TUNING[0] - 1}")
        given.to = TARGETS[config.has_subspace] if given.to is None else given.to
        if not 0.0 < given.to < 90.0 or not 0.0 <= given.work < 1e9:
            raise ConfigError("to must be positive and below 90, and work not negative")
        self.given, self.config = given, config
        self.methods = [parse_method(text) for text in given.method or ["snap"]]
        usual = config.options["sending"]
        texts = given.payload or [str(config.payload)]
        self.sendings = {text: parse_sending(text, usual) for text in texts}
        for method, sending in product(self.methods, self.sendings.values()):
            if method.is_scheme:
                check_drop(sending, name_of(method.build()))
        names = given.network or ["lan", "wan", "wireless"]
        self.wire = Wire({name: Network.read(name) for name in names}, given.work)
        self._loaded: tuple[int, str] = (0, "")
        self._data_of = (0, 0)  # seed and number of nodes

    def _cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield what is compared: facts that decide the numbers, and the parts."""
        given, config = self.given, self.config
        usual = self.world.size if self.over_mpi else config.traits.nodes
        n_nodes = config.nodes or usual
        networks = " ".join(one.to_toml() for one in self.wire.networks.values())
        self._common = config.deciding() | identity.versions() | {
            "nodes": n_nodes, "to": given.to, "work": given.work, "networks": networks,
        }  # fmt: skip
        for seed, topology, text, method in product(
            range(1, given.seeds + 1), given.topology, self.sendings, self.methods
        ):
            facts = {"problem": config.problem, "topology": topology, "nodes": n_nodes}
            facts |= {"method": method.text, "payload": text, "seed": seed}
            known = f"{identity.digest(identity.settings(self._common | facts)):016x}"
            yield facts | {"settings": known}, seed, topology, text, method

    def _cell(
        self, seed: int, topology: str, text: str, method: Method, done: dict[str, Any]
    ) -> dict[str, Any]:
        """Run one cell; return what it took, on rank 0."""
        best = None
        if method.tuned:
            best = self._tune(topology, text, method, done)
            if best is None:
                return {"ended": f"no {method.tuned} found", "tuned": ""}
        tuned = "" if best is None else f"{method.tuned}={best:.4g}"
        watch = self._run(seed, topology, text, method, best, self.config.max_iter)
        over_tree = getattr(method.make, "uses_tree", False)
        found = measure(self.world, self.graph, watch, self.wire, over_tree)
        name = self.config.plan(abilities(self._setting.problems.values())).name
        about = {"coordinates": name, "known": self._setting.known}
        about["nodes"] = self.graph.n_nodes  # a file may decide it
        return {"tuned": tuned, **about, **found}

    def _run(
        self, seed: int, topology: str, text: str, method: Method, best: Any, cap: int
    ) -> Watch:
        setting = self._prepare(seed, topology)
        made, sending = method.build(best), self.sendings[text]
        if not method.is_scheme:
            first = next(iter(setting.problems.values()))
            raw = (
                self.config.plan(abilities(setting.problems.values())).kind is Kind.RAW
            )
            kind = Kind.RAW if raw else Kind.METRIC
            check_suited(made, first, kind, sending, self.schedule)
        arrival = Arrival(self.given.to, cap)
        self._is_alone = True
        found = attempt(
            self.world, setting, self.graph, self.schedule, made, sending, arrival
        )
        self._is_alone = False
        return found

    def _tune(
        self, topology: str, text: str, method: Method, done: dict[str, Any]
    ) -> float | None:
        """Return the best value of a setting, found on other seeds than those shown."""
        facts = self._common | {"topology": topology, "payload": text}
        facts |= {"method": method.text, "seed": "tuning"}
        key = f"{identity.digest(identity.settings(facts)):016x}"
        if key not in done:

            def latest(value: float, cap: int) -> int | None:
                last = 0
                for seed in TUNING:
                    watch = self._run(seed, topology, text, method, value, cap)
                    if watch.arrival.for_good is None:
                        return None
                    last = max(last, watch.arrival.for_good)
                return last

            start = 1.0
            if method.is_scheme:
                setting = self._prepare(TUNING[0], topology)
                start = usual_penalty(self.world, setting, self.graph)
            done[key] = find_best(latest, start, self.config.max_iter)
            collectively(self.world, self._keep, key, done[key])
        found: float | None = done[key]
        return found

    def _prepare(self, seed: int, topology: str) -> Setting:
        """Load or draw the data of a seed, and build the graph, unless it was done."""
        names, config = self._loaded, self.config
        if names != (seed, topology):
            # `default_rng([s, 0])`, of a shared start, is `default_rng(s)`, of the data
            self.config = replace(
                config, topology=topology, data_seed=seed, seed=seed + 1
            )
            self.build_graph()
            if self._data_of != (seed, self.graph.n_nodes):
                self.load_data()
                self._setting, self._data_of = self._goal(), (seed, self.graph.n_nodes)
            self.config, self._loaded = config, (seed, topology)
        return self._setting

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

        def angle(theta: Any) -> float:
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

    def _done(self) -> str:
        """Return the finished runs of the folder, on rank 0."""
        folder, done = Path(self.given.out), {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / CELLS, "a+", encoding="utf-8") as file:
                file.seek(0)
                for line in file.read().splitlines():
                    with suppress(ValueError):  # the job was ended while it wrote this
                        key, done[key] = json.loads(line)
                file.write("\n")
        except OSError as error:
            raise OutputError(f"cannot use {folder}: {error.strerror}") from None
        return json.dumps(done)

    def _keep(self, key: str, found: Any) -> None:
        """Append a finished run to the folder, on rank 0."""
        if self.world.rank == 0:
            try:
                with open(Path(self.given.out) / CELLS, "a", encoding="utf-8") as file:
                    file.write(f"{json.dumps([key, found])}\n")
            except OSError as error:
                raise OutputError(
                    f"cannot write {self.given.out}: {error.strerror}"
                ) from None
